package sqlite

// HotQueries are queries whose cost must not grow with the store, and how many
// parameters they have.
var HotQueries = map[string]int{runsByBeginning: 3, parentCalls: 5, lastLink: 1}

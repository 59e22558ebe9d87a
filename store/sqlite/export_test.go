package sqlite

// HotQueries are queries whose cost must not grow with the store.
var HotQueries = []string{runsByBeginning}

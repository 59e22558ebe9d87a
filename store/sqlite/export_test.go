package sqlite

// HotQueries are queries whose cost must not grow with the store, and how many
// parameters they have.
var HotQueries = map[string]int{runsByBeginning: 7, parentCalls: 4, lastLink: 1, drivers: 0, expiredOf: 2, allOf: 1}

// Patiently waits while other processes write to a store that is opened.
var Patiently = patiently

// LookEvery is how often the file of a store is looked for.
const LookEvery = lookEvery

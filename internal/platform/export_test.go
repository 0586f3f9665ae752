package platform

// Kinds is kinds, for tests of other packages' contributions.
var Kinds = kinds

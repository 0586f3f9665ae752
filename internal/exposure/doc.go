// Package exposure turns what was observed of a Listener's class, Service and nodes into the addresses that lead there.
//
// It is pure: it never talks to the API server, and knows neither clock nor environment. The order of addresses is API
// (contract 1.5): consumers take the first one.
package exposure

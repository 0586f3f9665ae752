// Package exposure decides how Listeners are reached: what the API server should hold for that, and which addresses it
// results in. Every Listener has a Service; a Backend is one way of reaching it, layered over the Service if need be.
// The packages below this one are the backends.
//
// It is pure: it never talks to the API server, and knows neither clock nor environment. The order of addresses is API
// (contract 1.5): consumers take the first one.
package exposure

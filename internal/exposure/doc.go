// Package exposure computes the objects that expose a Listener, and its addresses. Every Listener has a Service, which
// function Service builds. A Backend adds further objects, if it needs any, and chooses the addresses. The backends are
// the packages below this one; package backends lists them and describes how to add one.
//
// It is pure: it never talks to the API server, and depends on neither clock nor environment. The order of addresses is
// part of the API (contract: the order is part of the API), because consumers use the first one.
package exposure

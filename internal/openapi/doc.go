// Package openapi describes the HTTP endpoints of the daemon (OpenAPI 3.1), as JSON for programs and as a page for people.
//
// The description is written by hand, in parts/*.yaml, one file for each area. Each file has paths and components; together they are one
// document, and a name may stand once. What is posted to webhooks stands under webhooks, an event as a path. A pattern {name...} of the router stands as {name}. Two members are our own: x-call is the query of the
// call that a test makes (path parameters are put in by the test), where the examples of the parameters will not do; x-undocumented marks
// a path that the router has and no file describes.
//
// A daemon shows the paths that it has, and no others: a role that is off leaves its paths out. The package knows of the daemon only
// what it is told, the routes of its router; whether it answers as it is described, a test of daemon checks.
package openapi

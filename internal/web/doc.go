// Package web is what every HTTP face of the daemon shares: the one table from
// error code to status, JSON answers, lists with Link paging, opaque cursors,
// bounded request bodies, a router that answers 404 and 405 as coded errors,
// the guard in front of all handlers, and the writer of event streams.
//
// It knows the protocol's error codes and nothing else of it: no room, no
// record, no token. It may import adp and no role, and it keeps no state but
// the guard's table of client addresses.
//
// A face is put together as NewServer(guard.Wrap(mux), log). Handlers return an
// error; the mux writes it with WriteError. All wrappers of ResponseWriter here
// have Unwrap, so http.ResponseController reaches the connection.
package web

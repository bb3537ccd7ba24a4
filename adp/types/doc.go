// Package types is the type system of a room (ADP §13): declarations as they
// stand in room.create and type.define, the definitions they become, the
// registry in force, the registered packs, and the schemas that payloads are
// checked with.
//
// It does no I/O: external packs are fetched by the caller and handed in by
// digest. It keeps no state but a bounded cache of compiled schemas.
//
// A schema comes from a stranger and runs on every payload of its type, so its
// cost is judged before it is compiled, and again before each payload. What is
// outside of our bounds is refused on our own host and ErrUnjudged in somebody
// else's room; it is never run and hoped for.
package types

// Package inspect verifies an archive or a room in full, wherever its bytes come from: a file, a host, a mirror, on a command line or in a
// browser. It reads the forms that an archive has, hands the records to the replay of adp/room, and compares what they amount to with what
// the manifest, the room resource, a web page and signed statements say of them. It has no clock, no network and no files of its own: whoever
// uses it brings readers and a Place. It judges no record itself; that is for adp and adp/room.
package inspect

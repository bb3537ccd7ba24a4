// Package remote is the client of the API of an ADP host, of a mirror, and of a daemon's own endpoints: it reads rooms and
// checks each record as it comes, verifies whole rooms, and writes events that it signs with the key that it is given.
//
// It trusts no host. It keeps nothing, shows nothing to anybody, and opens connections only by the internal/fetch client that it is handed.
package remote

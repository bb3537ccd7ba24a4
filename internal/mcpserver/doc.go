// Package mcpserver offers a daemon, and the rooms that it knows, to agents as tools of the Model Context Protocol.
//
// There is one implementation of the tools, over the HTTP API of a daemon. "witan mcp" runs it over standard input and output and may
// sign with a local key; the daemon runs it under /mcp, read-only, with its own handler in place of a network.
//
// What others wrote in rooms is never mixed with what witan says. Each answer has two parts, in the structured content and in the text:
// facts, which were checked or computed here and hold no free text of others, and untrusted, which holds such text behind a warning, escaped,
// and in the text form between delimiters that its authors cannot have known. It is data, and is never interpreted here.
//
// The package knows nothing of stores or roles, and opens connections only by the clients that it is handed.
package mcpserver

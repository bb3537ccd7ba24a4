package types

import (
	"container/list"
	"crypto/sha256"
	"sync"
)

// compiledSchemas is the process-wide cache: SHA-256 of the canonical schema →
// its compiled form or why there is none, least recently used first out. Its
// bounds hold it below some 80 MB even if every schema is as large as can be.
var compiledSchemas = newSchemaCache(1024, 1<<17)

type schemaCache struct {
	mu    sync.Mutex
	max   int // entries
	room  int // of schema.size, summed
	used  int
	order list.List // of *cachedSchema, most recent first
	byKey map[[sha256.Size]byte]*list.Element
}

func newSchemaCache(entries, size int) *schemaCache {
	return &schemaCache{max: entries, room: size, byKey: map[[sha256.Size]byte]*list.Element{}}
}

type cachedSchema struct {
	key [sha256.Size]byte
	s   *schema
	err *schemaError
}

func (c *cachedSchema) size() int {
	if c.s == nil {
		return 1
	}
	return c.s.size
}

func (c *schemaCache) get(key [sha256.Size]byte, text []byte) (*schema, *schemaError) {
	c.mu.Lock()
	if e, ok := c.byKey[key]; ok {
		c.order.MoveToFront(e)
		c.mu.Unlock()
		hit := e.Value.(*cachedSchema)
		return hit.s, hit.err
	}
	c.mu.Unlock()
	made := &cachedSchema{key: key}
	made.s, made.err = compileSchema(text) // outside of the lock: others go on
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		hit := e.Value.(*cachedSchema)
		return hit.s, hit.err
	}
	c.byKey[key] = c.order.PushFront(made)
	c.used += made.size()
	for c.order.Len() > c.max || c.used > c.room {
		last := c.order.Remove(c.order.Back()).(*cachedSchema)
		delete(c.byKey, last.key)
		c.used -= last.size()
	}
	return made.s, made.err
}

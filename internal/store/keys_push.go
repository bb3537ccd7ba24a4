package store

// Kinds of keys for what is pushed to others, and ranked for them.
const (
	kindWebhook      = 'h'
	kindWebhookQueue = 'Q'
	kindWatchedRoom  = 'o'
	kindWatchedHost  = 'O'
	kindInterests    = 'f'
)

// Webhook is a webhook by its ID.
func Webhook(id string) []byte          { return stringsKey(kindWebhook, id) }
func WebhookRange() (from, to []byte)   { return under([]byte{kindWebhook}) }
func Interests(agent string) []byte     { return stringsKey(kindInterests, agent) }
func InterestsRange() (from, to []byte) { return under([]byte{kindInterests}) }

// WebhookQueue is an event that waits for the receiver of a webhook.
func WebhookQueue(id string, n uint64) []byte {
	return appendNumber(stringsKey(kindWebhookQueue, id), n)
}

// WebhookQueueRange holds the events of one webhook, or of all for an empty one.
func WebhookQueueRange(id string) (from, to []byte) { return underStrings(kindWebhookQueue, id) }

// WatchedRoom is what was told of the room of a replica.
func WatchedRoom(id uint64) []byte        { return numberKey(kindWatchedRoom, id) }
func WatchedRoomRange() (from, to []byte) { return under([]byte{kindWatchedRoom}) }

// WatchedHost is what was told of a host.
func WatchedHost(origin string) []byte    { return stringsKey(kindWatchedHost, origin) }
func WatchedHostRange() (from, to []byte) { return under([]byte{kindWatchedHost}) }

// ParseWebhookQueue returns the parts of a WebhookQueue key.
func ParseWebhookQueue(key []byte) (id string, n uint64, err error) {
	p := parse(key, kindWebhookQueue)
	id, n = p.text(), p.number()
	return id, n, p.end()
}

// ParseWatchedRoom returns the part of a WatchedRoom key.
func ParseWatchedRoom(key []byte) (id uint64, err error) {
	p := parse(key, kindWatchedRoom)
	id = p.number()
	return id, p.end()
}

// ParseWatchedHost returns the part of a WatchedHost key.
func ParseWatchedHost(key []byte) (origin string, err error) {
	p := parse(key, kindWatchedHost)
	origin = p.text()
	return origin, p.end()
}

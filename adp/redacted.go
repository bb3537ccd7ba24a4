package adp

// A host or a mirror may have to keep what an agent said from being read, without
// breaking the chain: it serves {"hash","redacted":true,"type"} in place of the
// envelope. The record hash covers the envelope by its hash alone, so that chain
// and Merkle root verify as before; signature, payload and the events digest can
// no longer be checked, and the type is the server's word.

var errRedacted = Errorf(InvalidSignature, "the envelope is withheld: neither its hash nor its signature can be checked")

// ParseServed is ParseRecord for what a host serves: the envelope may be
// redacted. Record.Redacted then says so, and CheckSignature is an error. Whether
// an event of that type may be withheld is judged in adp/room.
func ParseServed(v Value) (*Record, error) {
	return parseRecord(v, func(env Value) (*Envelope, error) {
		if env.Kind() == Object && env.Get("redacted").Exists() {
			return parseRedacted(env)
		}
		return ParseEnvelope(env)
	})
}

func parseRedacted(v Value) (*Envelope, error) {
	hash, typ := v.Get("hash").Text(), v.Get("type").Text()
	if yes, ok := v.Get("redacted").Bool(); v.Len() != 3 || !ok || !yes || !IsHash(hash) || typ == "" {
		return nil, Errorf(InvalidEvent, `a redacted envelope has exactly hash, "redacted": true and type`)
	}
	v, err := v.Canonical()
	if err != nil {
		return nil, err
	}
	return &Envelope{Hash: hash, Type: typ, Protocol: Protocol, CreatedAt: -1, value: v, shape: errRedacted, redacted: true}, nil
}

// Redact is the record with its envelope withheld. Its hash, and so the chain and
// the Merkle tree, stay as they are.
func (r *Record) Redact() (*Record, error) {
	v, err := EncodeValue(map[string]any{"hash": r.Envelope.Hash, "redacted": true, "type": r.Envelope.Type})
	if err != nil {
		return nil, err
	}
	out := *r
	if out.Envelope, err = parseRedacted(v); err != nil {
		return nil, err
	}
	out.Envelope.RoomID, out.Redacted = r.RoomID, true
	out.raw = out.encode()
	return &out, nil
}

package store_test

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/witan-adp/witan/internal/store"
)

// kinds makes a key of each kind from the same few parts, and its ranges from the widest to the narrowest.
var kinds = []struct {
	name   string
	key    func(a, b, c string, id uint64, seq int64, hash [32]byte) []byte
	ranges func(a, b, c string, id uint64, seq int64) [][2][]byte
}{
	{"Meta", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Meta(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.MetaRange()) }},
	{"ReplicaRow", func(_, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.ReplicaRow(id) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.ReplicaRowRange()) }},
	{"ReplicaByName", func(a, b, c string, _ uint64, _ int64, _ [32]byte) []byte { return store.ReplicaByName(a, b, c) },
		func(a, b, _ string, _ uint64, _ int64) [][2][]byte { return byRoom(store.ReplicaByNameRange, a, b) }},
	{"Record", func(_, _, _ string, id uint64, seq int64, _ [32]byte) []byte { return store.Record(id, seq) },
		func(_, _, _ string, id uint64, seq int64) [][2][]byte {
			return append(two(store.RecordsOf(id)), two(store.RecordRange(id, seq, seq+1))...)
		}},
	{"EnvelopeSeq", func(_, _, _ string, id uint64, _ int64, h [32]byte) []byte { return store.EnvelopeSeq(id, h) },
		func(_, _, _ string, id uint64, _ int64) [][2][]byte { return two(store.EnvelopeSeqRange(id)) }},
	{"TreeTile", func(_, _, _ string, id uint64, seq int64, _ [32]byte) []byte { return store.TreeTile(id, uint64(seq)) },
		func(_, _, _ string, id uint64, _ int64) [][2][]byte { return two(store.TreeTileRange(id)) }},
	{"Snapshot", func(_, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.Snapshot(id) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.SnapshotRange()) }},
	{"Nonce", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Nonce(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.NonceRange()) }},
	{"JoinRequest", func(a, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.JoinRequest(id, a) },
		func(_, _, _ string, id uint64, _ int64) [][2][]byte { return two(store.JoinRequestRange(id)) }},
	{"MemberRoom", func(a, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.MemberRoom(a, id) },
		func(a, _, _ string, _ uint64, _ int64) [][2][]byte {
			return append(two(store.MemberRoomRange("")), two(store.MemberRoomRange(a))...)
		}},
	{"Archive", func(a, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.Archive(id, a) },
		func(_, _, _ string, id uint64, _ int64) [][2][]byte { return two(store.ArchiveRange(id)) }},
	{"Statement", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Statement(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.StatementRange()) }},
	{"StatementByRoom", func(a, b, c string, _ uint64, _ int64, _ [32]byte) []byte { return store.StatementByRoom(a, b, c) },
		func(a, b, _ string, _ uint64, _ int64) [][2][]byte { return byRoom(store.StatementByRoomRange, a, b) }},
	{"Attestation", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Attestation(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.AttestationRange()) }},
	{"AttestationByRoom", func(a, b, c string, _ uint64, _ int64, _ [32]byte) []byte { return store.AttestationByRoom(a, b, c) },
		func(a, b, _ string, _ uint64, _ int64) [][2][]byte { return byRoom(store.AttestationByRoomRange, a, b) }},
	{"Evidence", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Evidence(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.EvidenceRange()) }},
	{"EvidenceByRoom", func(a, b, c string, _ uint64, _ int64, _ [32]byte) []byte { return store.EvidenceByRoom(a, b, c) },
		func(a, b, _ string, _ uint64, _ int64) [][2][]byte { return byRoom(store.EvidenceByRoomRange, a, b) }},
	{"Host", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Host(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.HostRange()) }},
	{"HostRoom", func(a, b, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.HostRoom(a, b) },
		func(a, _, _ string, _ uint64, _ int64) [][2][]byte {
			return append(two(store.HostRoomRange("")), two(store.HostRoomRange(a))...)
		}},
	{"Listed", func(a, b, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Listed(a, b) },
		func(a, _, _ string, _ uint64, _ int64) [][2][]byte {
			return append(two(store.ListedRange("")), two(store.ListedRange(a))...)
		}},
	{"Branch", func(_, _, _ string, id uint64, seq int64, _ [32]byte) []byte { return store.Branch(id, seq) },
		func(_, _, _ string, id uint64, seq int64) [][2][]byte {
			return append(two(store.BranchesOf(id)), two(store.BranchRange(id, seq, seq+1))...)
		}},
	{"Binding", func(a, b, c string, _ uint64, _ int64, _ [32]byte) []byte { return store.Binding(a, b, c) },
		func(a, b, _ string, _ uint64, _ int64) [][2][]byte { return byRoom(store.BindingRange, a, b) }},
	{"Pack", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Pack(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.PackRange()) }},
	{"Policy", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Policy(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.PolicyRange()) }},
	{"TreeNode", func(_, _, _ string, id uint64, seq int64, _ [32]byte) []byte {
		return store.TreeNode(id, 8, uint64(seq))
	},
		func(_, _, _ string, id uint64, _ int64) [][2][]byte { return two(store.TreeNodeRange(id)) }},
	{"Content", func(a, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.Content(a, id) },
		func(a, _, _ string, _ uint64, _ int64) [][2][]byte {
			return append(two(store.ContentRange("")), two(store.ContentRange(a))...)
		}},
	{"RoomCheckpoint", func(_, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.RoomCheckpoint(id) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.RoomCheckpointRange()) }},
	{"LogEntry", func(_, _, _ string, id uint64, seq int64, _ [32]byte) []byte { return store.LogEntry(id, uint64(seq)) },
		func(_, _, _ string, id uint64, seq int64) [][2][]byte {
			if seq == -1 { // the greatest index has no end behind it
				return nil
			}
			return two(store.LogEntryRange(id, uint64(seq), uint64(seq)+1))
		}},
	{"LogTile", func(_, _, _ string, id uint64, seq int64, _ [32]byte) []byte {
		return store.LogTile(id, 1, uint64(seq))
	},
		func(_, _, _ string, id uint64, _ int64) [][2][]byte { return two(store.LogTileRange(id)) }},
	{"LogIndex", func(a, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.LogIndex(id, a) },
		func(_, _, _ string, id uint64, _ int64) [][2][]byte { return two(store.LogIndexRange(id)) }},
	{"Cosigned", func(_, _, _ string, _ uint64, _ int64, h [32]byte) []byte { return store.Cosigned(h) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.CosignedRange()) }},
	{"Withheld", func(_, _, _ string, id uint64, seq int64, _ [32]byte) []byte { return store.Withheld(id, seq) },
		func(_, _, _ string, id uint64, _ int64) [][2][]byte { return two(store.WithheldRange(id)) }},
	{"Sealed", func(_, _, _ string, id uint64, seq int64, _ [32]byte) []byte { return store.Sealed(id, seq) },
		func(_, _, _ string, id uint64, _ int64) [][2][]byte { return two(store.SealedRange(id)) }},
	{"TailHead", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.TailHead(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.TailHeadRange()) }},
	{"TailTile", func(a, _, _ string, id uint64, seq int64, _ [32]byte) []byte {
		return store.TailTile(a, 1, id, uint64(seq))
	},
		func(a, _, _ string, _ uint64, _ int64) [][2][]byte {
			return append(two(store.TailTileRange("")), two(store.TailTileRange(a))...)
		}},
	{"TailIndex", func(a, b, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.TailIndex(a, b) },
		func(a, _, _ string, _ uint64, _ int64) [][2][]byte {
			return append(two(store.TailIndexRange("")), two(store.TailIndexRange(a))...)
		}},
	{"Claim", func(a, b, c string, _ uint64, _ int64, _ [32]byte) []byte { return store.Claim(a, b, c, a) },
		func(a, _, _ string, _ uint64, _ int64) [][2][]byte {
			return append(two(store.ClaimRange("")), two(store.ClaimRange(a))...)
		}},
	{"Webhook", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Webhook(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.WebhookRange()) }},
	{"WebhookQueue", func(a, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.WebhookQueue(a, id) },
		func(a, _, _ string, _ uint64, _ int64) [][2][]byte {
			return append(two(store.WebhookQueueRange("")), two(store.WebhookQueueRange(a))...)
		}},
	{"WatchedRoom", func(_, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.WatchedRoom(id) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.WatchedRoomRange()) }},
	{"WatchedHost", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.WatchedHost(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.WatchedHostRange()) }},
	{"Interests", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.Interests(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.InterestsRange()) }},
	{"Sample", func(_, _, _ string, id uint64, _ int64, _ [32]byte) []byte { return store.Sample(id) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.SampleRange()) }},
	{"SeenLog", func(a, _, _ string, _ uint64, _ int64, _ [32]byte) []byte { return store.SeenLog(a) },
		func(_, _, _ string, _ uint64, _ int64) [][2][]byte { return two(store.SeenLogRange()) }},
}

func two(from, to []byte) [][2][]byte { return [][2][]byte{{from, to}} }

func byRoom(f func(a, b string) (from, to []byte), a, b string) [][2][]byte {
	return slices.Concat(two(f("", "")), two(f(a, "")), two(f(a, b)))
}

func within(key []byte, r [2][]byte) bool {
	return bytes.Compare(r[0], key) <= 0 && (r[1] == nil || bytes.Compare(key, r[1]) < 0)
}

// parts are strings that would be confused by a careless layout.
var parts = rapid.OneOf(
	rapid.SampledFrom([]string{"a", "aa", "a\x00", "a\x00\x01", "a\x00\xff", "a\x01", "\x00", "\xff", "a/b", "did:agent:x", "room~1.2%3A"}),
	rapid.StringN(1, 12, -1),
)

// TestKeysApart: no key of any kind is the beginning of another one, and a range holds exactly what its name says.
func TestKeysApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type drawn struct {
			a, b, c string
			id      uint64
			seq     int64
			hash    [32]byte
		}
		ids := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 255, 256, math.MaxUint64 - 1, math.MaxUint64}))
		seqs := rapid.OneOf(rapid.Int64Max(math.MaxInt64-1), rapid.SampledFrom([]int64{-1, 0, 1, 255, 256}))
		draw := func(name string) (d drawn) {
			d.a, d.b, d.c = parts.Draw(t, name+".a"), parts.Draw(t, name+".b"), parts.Draw(t, name+".c")
			d.id, d.seq = ids.Draw(t, name+".id"), seqs.Draw(t, name+".seq")
			d.hash[0] = byte(d.id)
			return d
		}
		x := draw("x")
		y := draw("y")
		if rapid.Bool().Draw(t, "near") { // share leading parts, so that narrow ranges are tried from the inside too
			y.a, y.id = x.a, x.id
		}
		for _, k := range kinds {
			kx := k.key(x.a, x.b, x.c, x.id, x.seq, x.hash)
			for i, r := range k.ranges(x.a, x.b, x.c, x.id, x.seq) {
				if !within(kx, r) {
					t.Fatalf("%s key %q is not in its range %d [%q, %q)", k.name, kx, i, r[0], r[1])
				}
			}
			for _, l := range kinds {
				ly := l.key(y.a, y.b, y.c, y.id, y.seq, y.hash)
				if !bytes.Equal(kx, ly) && (bytes.HasPrefix(kx, ly) || bytes.HasPrefix(ly, kx)) {
					t.Fatalf("%s %q and %s %q: one is the beginning of the other", k.name, kx, l.name, ly)
				}
				if k.name != l.name && kx[0] == ly[0] {
					t.Fatalf("%s and %s share the letter %q", k.name, l.name, kx[0])
				}
				for i, r := range k.ranges(x.a, x.b, x.c, x.id, x.seq) {
					if k.name != l.name && within(ly, r) {
						t.Fatalf("%s key %q is in range %d of %s", l.name, ly, i, k.name)
					}
				}
			}
		}
		for name, in := range map[string]struct{ want, got bool }{
			"records of another replica": {x.id == y.id, in(store.Record(y.id, y.seq))(store.RecordsOf(x.id))},
			"rooms of another agent":     {x.a == y.a, in(store.MemberRoom(y.a, y.id))(store.MemberRoomRange(x.a))},
			"rooms of another host":      {x.a == y.a, in(store.HostRoom(y.a, y.b))(store.HostRoomRange(x.a))},
			"statements of another room": {x.a == y.a && x.b == y.b,
				in(store.StatementByRoom(y.a, y.b, y.c))(store.StatementByRoomRange(x.a, x.b))},
			"records of a stretch": {x.id == y.id && x.seq <= y.seq && y.seq < x.seq+1,
				in(store.Record(y.id, y.seq))(store.RecordRange(x.id, x.seq, x.seq+1))},
		} {
			if in.want != in.got {
				t.Fatalf("%s: in the range %v, want %v (x %+v, y %+v)", name, in.got, in.want, x, y)
			}
		}
		if got := bytes.Compare(store.Record(x.id, x.seq), store.Record(y.id, y.seq)); got != cmp.Or(cmp.Compare(x.id, y.id), cmp.Compare(x.seq, y.seq)) {
			t.Fatalf("records %d/%d and %d/%d compare %d", x.id, x.seq, y.id, y.seq, got)
		}
		if got := bytes.Compare(store.HostRoom(x.a, x.b), store.HostRoom(y.a, y.b)); got != cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b)) {
			t.Fatalf("rooms %q/%q and %q/%q compare %d", x.a, x.b, y.a, y.b, got)
		}
	})
}

func in(key []byte) func(from, to []byte) bool {
	return func(from, to []byte) bool { return within(key, [2][]byte{from, to}) }
}

// TestKeysOneEach: a key says all of its parts, so different parts give different keys.
func TestKeysOneEach(t *testing.T) {
	base := func(f func(a, b, c string, id uint64, seq int64, hash [32]byte) []byte) []byte {
		return f("a", "b", "c", 1, 1, [32]byte{1})
	}
	used := map[string]int{ // how many of the six parts each kind carries
		"Meta": 1, "ReplicaRow": 1, "ReplicaByName": 3, "Record": 2, "EnvelopeSeq": 2, "TreeTile": 2, "Snapshot": 1, "Nonce": 1,
		"JoinRequest": 2, "MemberRoom": 2, "Archive": 2, "Statement": 1, "StatementByRoom": 3, "Attestation": 1,
		"AttestationByRoom": 3, "Evidence": 1, "EvidenceByRoom": 3, "Host": 1, "HostRoom": 2, "Branch": 2, "Binding": 3,
		"Pack": 1, "Policy": 1, "Sample": 1, "TreeNode": 2, "Content": 2, "RoomCheckpoint": 1, "LogEntry": 2, "LogTile": 2, "LogIndex": 2, "SeenLog": 1,
		"Withheld": 2, "Sealed": 2, "Cosigned": 1,
		"TailHead": 1, "TailTile": 3, "TailIndex": 2, "Claim": 3,
		"Webhook": 1, "WebhookQueue": 2, "WatchedRoom": 1, "WatchedHost": 1, "Interests": 1, "Listed": 2,
	}
	for _, k := range kinds {
		differ := 0
		for _, other := range [][]byte{
			k.key("x", "b", "c", 1, 1, [32]byte{1}), k.key("a", "x", "c", 1, 1, [32]byte{1}), k.key("a", "b", "x", 1, 1, [32]byte{1}),
			k.key("a", "b", "c", 2, 1, [32]byte{1}), k.key("a", "b", "c", 1, 2, [32]byte{1}), k.key("a", "b", "c", 1, 1, [32]byte{2}),
		} {
			if !bytes.Equal(other, base(k.key)) {
				differ++
			}
		}
		if differ != used[k.name] {
			t.Errorf("%s depends on %d parts, want %d", k.name, differ, used[k.name])
		}
	}
}

func TestParseKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := parts.Draw(t, "a"), parts.Draw(t, "b"), parts.Draw(t, "c")
		id, seq := rapid.Uint64().Draw(t, "id"), rapid.Int64().Draw(t, "seq")
		if i, s, err := store.ParseRecord(store.Record(id, seq)); err != nil || i != id || s != seq {
			t.Fatalf("ParseRecord = %d, %d, %v", i, s, err)
		}
		if i, s, err := store.ParseBranch(store.Branch(id, seq)); err != nil || i != id || s != seq {
			t.Fatalf("ParseBranch = %d, %d, %v", i, s, err)
		}
		if i, err := store.ParseReplicaRow(store.ReplicaRow(id)); err != nil || i != id {
			t.Fatalf("ParseReplicaRow = %d, %v", i, err)
		}
		if s, i, err := store.ParseMemberRoom(store.MemberRoom(a, id)); err != nil || s != a || i != id {
			t.Fatalf("ParseMemberRoom = %q, %d, %v", s, i, err)
		}
		if i, s, err := store.ParseJoinRequest(store.JoinRequest(id, a)); err != nil || s != a || i != id {
			t.Fatalf("ParseJoinRequest = %d, %q, %v", i, s, err)
		}
		if s, i, err := store.ParseContent(store.Content(a, id)); err != nil || s != a || i != id {
			t.Fatalf("ParseContent = %q, %d, %v", s, i, err)
		}
		if s, err := store.ParseSeenLog(store.SeenLog(a)); err != nil || s != a {
			t.Fatalf("ParseSeenLog = %q, %v", s, err)
		}
		if o, r, g, l, err := store.ParseClaim(store.Claim(a, b, c, a)); err != nil || o != a || r != b || g != c || l != a {
			t.Fatalf("ParseClaim = %q, %q, %q, %q, %v", o, r, g, l, err)
		}
		if g, i, err := store.ParseLogEntry(store.LogEntry(id, uint64(seq))); err != nil || g != id || i != uint64(seq) {
			t.Fatalf("ParseLogEntry = %d, %d, %v", g, i, err)
		}
		if s, i, err := store.ParseWebhookQueue(store.WebhookQueue(a, id)); err != nil || s != a || i != id {
			t.Fatalf("ParseWebhookQueue = %q, %d, %v", s, i, err)
		}
		if i, err := store.ParseWatchedRoom(store.WatchedRoom(id)); err != nil || i != id {
			t.Fatalf("ParseWatchedRoom = %d, %v", i, err)
		}
		if s, err := store.ParseWatchedHost(store.WatchedHost(a)); err != nil || s != a {
			t.Fatalf("ParseWatchedHost = %q, %v", s, err)
		}
		if s, err := store.ParseHost(store.Host(a)); err != nil || s != a {
			t.Fatalf("ParseHost = %q, %v", s, err)
		}
		if s, r, err := store.ParseHostRoom(store.HostRoom(a, b)); err != nil || s != a || r != b {
			t.Fatalf("ParseHostRoom = %q, %q, %v", s, r, err)
		}
		if s, r, err := store.ParseListed(store.Listed(a, b)); err != nil || s != a || r != b {
			t.Fatalf("ParseListed = %q, %q, %v", s, r, err)
		}
		for _, make := range []func(a, b, c string) []byte{store.ReplicaByName, store.StatementByRoom, store.AttestationByRoom,
			store.EvidenceByRoom, store.Binding} {
			if x, y, z, err := store.ParseNamed(make(a, b, c)); err != nil || x != a || y != b || z != c {
				t.Fatalf("ParseNamed = %q, %q, %q, %v", x, y, z, err)
			}
		}
	})
}

// FuzzParseKeys: what a parser accepts is exactly the key that its parts make, so nothing is read in two ways.
func FuzzParseKeys(f *testing.F) {
	for _, k := range kinds {
		key := k.key("a\x00b", "room", "c", 7, -3, [32]byte{9})
		f.Add(key)
		f.Add(key[:len(key)-1])
		f.Add(append(bytes.Clone(key), 0))
	}
	f.Add([]byte("H\x00\x02"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, key []byte) {
		accepted := 0
		check := func(name string, err error, back func() []byte) {
			switch {
			case err == nil:
				accepted++
				if !bytes.Equal(back(), key) {
					t.Errorf("%s took %q, which its parts make %q", name, key, back())
				}
			case !errors.Is(err, store.ErrBadKey):
				t.Errorf("%s(%q) = %v, want ErrBadKey", name, key, err)
			}
		}
		id, seq, err := store.ParseRecord(key)
		check("ParseRecord", err, func() []byte { return store.Record(id, seq) })
		bid, bseq, err := store.ParseBranch(key)
		check("ParseBranch", err, func() []byte { return store.Branch(bid, bseq) })
		row, err := store.ParseReplicaRow(key)
		check("ParseReplicaRow", err, func() []byte { return store.ReplicaRow(row) })
		cid, of, err := store.ParseContent(key)
		check("ParseContent", err, func() []byte { return store.Content(cid, of) })
		seen, err := store.ParseSeenLog(key)
		check("ParseSeenLog", err, func() []byte { return store.SeenLog(seen) })
		origin, id4, genesis, line, err := store.ParseClaim(key)
		check("ParseClaim", err, func() []byte { return store.Claim(origin, id4, genesis, line) })
		generation, index, err := store.ParseLogEntry(key)
		check("ParseLogEntry", err, func() []byte { return store.LogEntry(generation, index) })
		agent, room, err := store.ParseMemberRoom(key)
		check("ParseMemberRoom", err, func() []byte { return store.MemberRoom(agent, room) })
		jid, request, err := store.ParseJoinRequest(key)
		check("ParseJoinRequest", err, func() []byte { return store.JoinRequest(jid, request) })
		hook, n, err := store.ParseWebhookQueue(key)
		check("ParseWebhookQueue", err, func() []byte { return store.WebhookQueue(hook, n) })
		watched, err := store.ParseWatchedRoom(key)
		check("ParseWatchedRoom", err, func() []byte { return store.WatchedRoom(watched) })
		told, err := store.ParseWatchedHost(key)
		check("ParseWatchedHost", err, func() []byte { return store.WatchedHost(told) })
		host, err := store.ParseHost(key)
		check("ParseHost", err, func() []byte { return store.Host(host) })
		origin, roomID, err := store.ParseHostRoom(key)
		check("ParseHostRoom", err, func() []byte { return store.HostRoom(origin, roomID) })
		lister, lists, err := store.ParseListed(key)
		check("ParseListed", err, func() []byte { return store.Listed(lister, lists) })
		a, b, c, err := store.ParseNamed(key)
		check("ParseNamed", err, func() []byte {
			switch key[0] {
			case 'N':
				return store.ReplicaByName(a, b, c)
			case 'T':
				return store.StatementByRoom(a, b, c)
			case 'B':
				return store.AttestationByRoom(a, b, c)
			case 'F':
				return store.EvidenceByRoom(a, b, c)
			}
			return store.Binding(a, b, c)
		})
		if accepted > 1 {
			t.Errorf("%d parsers took %q", accepted, key)
		}
	})
}

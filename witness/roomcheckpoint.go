package witness

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/adp/room"
	"github.com/witan-adp/witan/internal/replica"
	"github.com/witan-adp/witan/internal/store"
	"github.com/witan-adp/witan/internal/tilelog"
)

// A room has a new checkpoint at most this often: after a time, or earlier once it
// has grown by this many records.
const (
	checkpointEvery   = 30_000 // ms
	checkpointRecords = 256
)

// roomHead is the checkpoint that was signed last for a room, as it is stored.
type roomHead struct {
	Size int64  `json:"size"`
	Root []byte `json:"root"`
	At   int64  `json:"at"` // Unix ms
	Key  string `json:"key"`
	Note []byte `json:"note"`
}

// RoomOrigin is the origin line of the checkpoints of a room.
func RoomOrigin(s Subject) string {
	return authorityOf(s.Origin) + "/witan/rooms/" + s.RoomID + "/" + s.Genesis
}

// ServeRoomCheckpoint answers GET …/rooms/{id}/checkpoint: the signed head of the
// Merkle tree over the record hashes of an own public room (C2SP tlog-checkpoint).
// Whether the caller may read the room is for the caller of this to judge.
func (w *Witness) ServeRoomCheckpoint(rw http.ResponseWriter, req *http.Request, r *replica.Replica) error {
	if r.Origin != w.o.Origin {
		return adp.Errorf(adp.NotFound, "only the origin of a room signs its checkpoints: ask %s", r.Origin)
	}
	public := false
	if err := r.View(req.Context(), func(s *room.State) { public = s.Contract.Visibility == room.Public }); err != nil {
		return err
	}
	if !public {
		return adp.Errorf(adp.NotFound, "checkpoints are signed for public rooms only")
	}
	note, err := w.roomCheckpoint(r)
	if err != nil {
		return err
	}
	writeText(rw, note)
	return nil
}

// roomCheckpoint is the newest checkpoint of a room, made when one is due. What was
// signed before is compared first: the tree may only have grown from it.
func (w *Witness) roomCheckpoint(r *replica.Replica) ([]byte, error) {
	w.rooms.Lock()
	defer w.rooms.Unlock()
	raw, found, err := w.o.Store.Get(store.RoomCheckpoint(r.ID))
	if err != nil {
		return nil, err
	}
	var last roomHead
	if found {
		if err := json.Unmarshal(raw, &last); err != nil {
			return nil, fmt.Errorf("witness: the checkpoint of replica %d: %w", r.ID, err)
		}
	} else {
		raw = nil
	}
	if w.journal.log == nil {
		return nil, adp.Errorf(adp.NotFound, "this daemon signs nothing")
	}
	size, now := r.Row().Seq, w.o.Now()
	generation, _ := w.journal.log.Head()
	key := adp.Encode(w.logKey(generation))
	grown := size > last.Size && (now-last.At >= checkpointEvery || size-last.Size >= checkpointRecords)
	if found && size >= last.Size && key == last.Key && !grown {
		return last.Note, nil
	}
	if err := w.maySign(); err != nil {
		if found {
			return last.Note, nil // it was signed, and holds
		}
		return nil, adp.Errorf(adp.NotFound, "no checkpoint was signed yet: %v", err)
	}
	if found && key == last.Key { // a new log key owes nothing to the one before
		same := size >= last.Size
		if same {
			root, err := r.RootAt(last.Size)
			if err != nil {
				return nil, err
			}
			same = string(root[:]) == string(last.Root)
		}
		if !same {
			w.refuse(0, func() string { // of the present log: another one begins only when rooms is free
				return fmt.Sprintf("room %s was signed at %d records, and what is stored now is not what it has grown from", r.RoomID, last.Size)
			})
			return last.Note, nil
		}
	}
	root, err := r.RootAt(size)
	if err != nil {
		return nil, err
	}
	note, err := tilelog.Checkpoint{Origin: RoomOrigin(Subject(r.Key)), Size: uint64(size), Root: root}.Sign(w.o.LogKey(generation))
	if err != nil {
		return nil, err
	}
	next, err := json.Marshal(roomHead{size, root[:], now, key, note})
	if err != nil {
		return nil, err
	}
	var b store.Batch
	b.Expect(store.RoomCheckpoint(r.ID), raw)
	b.Put(store.RoomCheckpoint(r.ID), next)
	if err := w.put(&b); err != nil {
		if found { // the new one is not surely on the disk: it does not get out
			w.log.Warn("a room checkpoint could not be stored; the one before is shown", "room", r.RoomID, "err", err)
			return last.Note, nil
		}
		return nil, err
	}
	w.saw(note) // so that peers see it, and what contradicts it is found out
	return note, nil
}

package witness

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/tilelog"
	"github.com/witan-adp/witan/internal/web"
)

// How long others may keep what the log serves: a full tile never changes.
const (
	cacheForever = "public, max-age=31536000, immutable"
	cacheNever   = "no-cache"
)

// Routes adds the log, in the form of C2SP tlog-tiles under /log, and the proof of
// one envelope:
//
//	GET /log/checkpoint                        signed note, with its cosignatures
//	GET /log/tile/<L>/<N>[.p/<W>]              hashes
//	GET /log/tile/entries/<N>[.p/<W>]          entries, each JCS(envelope)
//	GET /v1/witness/log-entry?hash=<hash>      {index, size, hashes, checkpoint, vkey}, or with
//	                                           Accept: text/plain a C2SP tlog-proof; also of
//	                                           the logs of others that were read
func (w *Witness) Routes(mux *web.Mux) {
	mux.Handle("GET", "/log/checkpoint", w.serveCheckpoint)
	mux.Handle("GET", "/log/tile/{path...}", w.serveTile)
	mux.Handle("GET", "/v1/witness/log-entry", w.serveLogEntry)
}

// AdminRoutes adds what the operator of this daemon may ask and do: GET /log tells
// its state, POST /log/new begins a new one (see NewLog).
func (w *Witness) AdminRoutes(mux *web.Mux) {
	mux.Handle("GET", "/log", func(rw http.ResponseWriter, _ *http.Request) error {
		s, err := w.Log()
		if err == nil {
			web.WriteJSON(rw, http.StatusOK, s)
		}
		return err
	})
	mux.Handle("POST", "/log/new", func(rw http.ResponseWriter, _ *http.Request) error {
		s, err := w.NewLog()
		if err != nil {
			return adp.Errorf(adp.InvalidRequest, "%v", err)
		}
		web.WriteJSON(rw, http.StatusOK, s)
		return nil
	})
}

func noLog() error {
	return adp.Errorf(adp.NotFound, "this daemon shows no log: it signs nothing, or its log is damaged")
}

func notInLog() error {
	return adp.Errorf(adp.NotFound, "the log has no such part; /log/checkpoint says how large it is")
}

func (w *Witness) serveCheckpoint(rw http.ResponseWriter, _ *http.Request) error {
	note := w.ownCheckpoint()
	if len(note) == 0 {
		return noLog()
	}
	writeText(rw, w.cosigned(note))
	return nil
}

func writeText(rw http.ResponseWriter, text []byte) {
	write(rw, "text/plain; charset=utf-8", cacheNever, text)
}

func write(rw http.ResponseWriter, typ, cache string, body []byte) {
	h := rw.Header()
	h.Set("Content-Type", typ)
	h.Set("Cache-Control", cache)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(http.StatusOK)
	_, _ = rw.Write(body) // the length is declared: a cut answer is seen to be cut
}

func (w *Witness) serveTile(rw http.ResponseWriter, r *http.Request) error {
	if len(w.ownCheckpoint()) == 0 {
		return noLog()
	}
	t, err := tilelog.ParsePath("tile/" + r.PathValue("path"))
	if err != nil {
		return adp.Errorf(adp.NotFound, "not a tile: /log/tile/<L>/<N>[.p/<W>] or /log/tile/entries/<N>[.p/<W>] (https://c2sp.org/tlog-tiles)")
	}
	body, err := w.journal.log.Read(t)
	if errors.Is(err, tilelog.ErrNotThere) {
		return notInLog()
	}
	if err != nil {
		return err
	}
	// a partial tile is a part of what will not change either
	write(rw, "application/octet-stream", cacheForever, body)
	return nil
}

type logEntry struct {
	Index      uint64   `json:"index"`
	Size       uint64   `json:"size"`
	Hashes     []string `json:"hashes"` // base64, as in C2SP
	Checkpoint string   `json:"checkpoint"`
	VKey       string   `json:"vkey"` // verifier key of the log
}

func (w *Witness) serveLogEntry(rw http.ResponseWriter, r *http.Request) error {
	q, err := web.ParseQuery(r)
	if err != nil {
		return err
	}
	hash, err := web.String(q, "hash")
	if err != nil {
		return err
	}
	if !adp.IsHash(hash) {
		return adp.Errorf(adp.InvalidRequest, "hash must be that of a statement or an attestation of this daemon").With("parameter", "hash")
	}
	p, size, keys, err := w.proveEntry(hash)
	if errors.Is(err, tilelog.ErrNotThere) {
		if len(w.ownCheckpoint()) == 0 {
			return noLog()
		}
		return adp.Errorf(adp.NotFound, "the log of this daemon has no such envelope, nor has one that it has read whole")
	}
	if err != nil {
		return err
	}
	rw.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/plain") {
		writeText(rw, p.Text())
		return nil
	}
	e := logEntry{Index: p.Index, Size: size, Hashes: []string{}, Checkpoint: string(p.Checkpoint)}
	for _, key := range keys {
		if c, err := tilelog.OpenCheckpoint(p.Checkpoint, key); err == nil {
			if e.VKey, err = tilelog.VerifierKey(c.Origin, key); err != nil {
				return err
			}
		}
	}
	for _, h := range p.Hashes {
		e.Hashes = append(e.Hashes, base64.StdEncoding.EncodeToString(h))
	}
	rw.Header().Set("Cache-Control", cacheNever)
	web.WriteJSON(rw, http.StatusOK, e)
	return nil
}

// proveEntry proves an envelope in our own log, or in one that was read; one of keys
// has signed the checkpoint.
func (w *Witness) proveEntry(hash string) (p tilelog.Proof, size uint64, keys []ed25519.PublicKey, err error) {
	if len(w.ownCheckpoint()) > 0 {
		index, ok, err := w.journal.log.Find(hash)
		if err != nil {
			return p, 0, nil, err
		}
		if ok {
			p, size, err = w.journal.log.Prove(index)
			p.Checkpoint = w.cosigned(p.Checkpoint)
			return p, size, w.logKeys(w.o.Origin), err
		}
	}
	for _, origin := range w.o.Origins() {
		t, err := w.tailOf(origin)
		if err != nil {
			return p, 0, nil, err
		}
		index, ok, err := t.copy.Find(hash)
		if err != nil {
			return p, 0, nil, err
		}
		if !ok {
			continue
		}
		if p, size, err = t.copy.Prove(index); !errors.Is(err, tilelog.ErrNotThere) {
			return p, size, w.logKeys(origin), err
		}
	}
	return p, 0, nil, tilelog.ErrNotThere
}

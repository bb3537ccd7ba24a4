package cosign

import (
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"

	"github.com/witan-adp/witan/adp"
	"github.com/witan-adp/witan/internal/cosignature"
	"github.com/witan-adp/witan/internal/web"
)

// Routes adds the calls of C2SP tlog-witness:
//
//	POST /witness/add-checkpoint            signature lines
//	GET  /witness/<origin hash>/checkpoint  the last checkpoint that was cosigned
func (w *Witness) Routes(mux *web.Mux) {
	mux.Handle("POST", Prefix+cosignature.AddCheckpoint, w.serveAdd)
	mux.Handle("GET", Prefix+"/{hash}/checkpoint", w.serveLast)
}

// status is the one table from reasons to HTTP statuses (tlog-witness,
// "add-checkpoint"); 0 for what the caller of us cannot help.
func status(err error) int {
	var conflict *Conflict
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, cosignature.ErrFormat):
		return http.StatusBadRequest
	case errors.Is(err, cosignature.ErrSignature):
		return http.StatusForbidden
	case errors.Is(err, ErrUnknownLog):
		return http.StatusNotFound
	case errors.As(err, &conflict):
		return http.StatusConflict
	case errors.Is(err, ErrProof):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrRefused):
		return http.StatusServiceUnavailable
	}
	return 0
}

func (w *Witness) serveAdd(rw http.ResponseWriter, r *http.Request) error {
	body, err := web.ReadBody(rw, r, cosignature.MaxRequest)
	if err != nil {
		return err
	}
	line, err := w.Add(body)
	code := status(err)
	if code == 0 {
		w.requests.WithLabelValues("500").Inc()
		return err
	}
	w.requests.WithLabelValues(strconv.Itoa(code)).Inc()
	var conflict *Conflict
	switch {
	case err == nil:
		write(rw, code, "text/plain; charset=utf-8", []byte(line))
	case errors.As(err, &conflict):
		write(rw, code, cosignature.SizeType, cosignature.SizeText(conflict.Size))
	default:
		write(rw, code, "text/plain; charset=utf-8", []byte(err.Error()+"\n"))
	}
	return nil
}

func (w *Witness) serveLast(rw http.ResponseWriter, r *http.Request) error {
	text := r.PathValue("hash")
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 32 || hex.EncodeToString(raw) != text {
		return adp.Errorf(adp.NotFound, "a log is named by the SHA-256 of its origin line, 64 hex digits in lower case (https://c2sp.org/tlog-witness)")
	}
	note, err := w.Last([32]byte(raw))
	if err != nil {
		return err
	}
	if note == nil {
		return adp.Errorf(adp.NotFound, "no checkpoint of this log was cosigned here")
	}
	write(rw, http.StatusOK, "text/plain; charset=utf-8", note)
	return nil
}

func write(rw http.ResponseWriter, code int, typ string, body []byte) {
	h := rw.Header()
	h.Set("Content-Type", typ)
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(code)
	_, _ = rw.Write(body) // the length is declared: a cut answer is seen to be cut
}

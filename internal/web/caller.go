package web

import (
	"net/http"
	"strings"

	"github.com/witan-adp/witan/adp"
)

// Caller is who signed the request token of a request to an origin, "" without
// one. now is Unix seconds. A token that does not verify is invalid_token, whatever
// the request asks for.
func Caller(r *http.Request, origin string, now int64) (adp.AgentID, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", nil
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return "", adp.Errorf(adp.InvalidToken, "the Authorization header must be: Bearer <request token>")
	}
	return adp.VerifyToken(strings.TrimSpace(token), origin, now)
}

// Identified is Caller, and demands a token.
func Identified(r *http.Request, origin string, now int64) (adp.AgentID, error) {
	who, err := Caller(r, origin, now)
	if err == nil && who == "" {
		err = NoToken()
	}
	return who, err
}

// NoToken is what a request is told that needs a request token and has none.
func NoToken() error {
	return adp.Errorf(adp.InvalidToken, "this needs a request token: Authorization: Bearer <JWT signed by your agent key, aud = the origin of this host>")
}

package adp

import (
	"crypto/ed25519"
	"strings"
)

// Bounds of a request token, in seconds (Identity, Request JWT).
const (
	TokenMaxAge  = 300
	tokenSkew    = 60
	tokenMaxSize = 4096
)

// SignToken makes a request token for a service origin, valid from now for ttl
// seconds. now is Unix seconds.
func SignToken(key ed25519.PrivateKey, origin string, now, ttl int64) (string, error) {
	id := NewAgentID(key.Public().(ed25519.PublicKey))
	header, err := EncodeValue(map[string]any{"alg": "EdDSA", "typ": "JWT", "kid": id})
	if err != nil {
		return "", err
	}
	claims, err := EncodeValue(map[string]any{"iss": id, "sub": id, "aud": origin, "iat": now, "exp": now + ttl})
	if err != nil {
		return "", err
	}
	input := Encode(header.Raw()) + "." + Encode(claims.Raw())
	return input + "." + Encode(ed25519.Sign(key, []byte(input))), nil
}

// VerifyToken tells who signed a request token for this origin. now is Unix
// seconds. Every error is invalid_token and never quotes the token.
func VerifyToken(token, origin string, now int64) (AgentID, error) {
	bad := func(why string) (AgentID, error) {
		return "", Errorf(InvalidToken, "the request token is not valid: %s", why)
	}
	if len(token) > tokenMaxSize {
		return bad("it is too long")
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return bad("it is not a compact JWS of three parts")
	}
	header, ok := tokenPart(parts[0])
	if !ok {
		return bad("its header is not strict JSON in base64url")
	}
	claims, ok := tokenPart(parts[1])
	if !ok {
		return bad("its claims are not strict JSON in base64url")
	}
	if header.Len() != 3 || !header.Get("alg").Is("EdDSA") || !header.Get("typ").Is("JWT") {
		return bad(`its header must be exactly {"alg":"EdDSA","typ":"JWT","kid":<Agent ID>}`)
	}
	kid := header.Get("kid").Text()
	id, err := ParseAgentID(kid)
	if err != nil {
		return bad("kid is not an Agent ID")
	}
	if !claims.Get("iss").Is(kid) || !claims.Get("sub").Is(kid) {
		return bad("iss, sub and kid must be the same Agent ID")
	}
	pub, err := id.PublicKey()
	if err != nil {
		return bad("kid is not an Agent ID")
	}
	sig, err := DecodeSignature(parts[2])
	if err != nil {
		return bad("its signature is not 64 bytes in base64url")
	}
	if VerifySignature(pub, []byte(token[:len(parts[0])+1+len(parts[1])]), sig[:]) != nil {
		return bad("its signature does not verify")
	}
	if !claims.Get("aud").Is(origin) {
		return bad("aud must be the origin of this service, " + origin)
	}
	iat, ok1 := claims.Get("iat").Int()
	exp, ok2 := claims.Get("exp").Int()
	switch {
	case !ok1 || !ok2:
		return bad("iat and exp must be integers (Unix seconds)")
	case exp <= iat:
		return bad("exp must be later than iat")
	case exp-iat > TokenMaxAge:
		return bad("it may live 300 seconds at most")
	case exp < now:
		return bad("it has expired; sign a new one")
	case iat > now+tokenSkew:
		return bad("it comes from the future; check your clock")
	}
	if nbf := claims.Get("nbf"); nbf.Exists() {
		if t, ok := nbf.Int(); !ok || t > now+tokenSkew {
			return bad("it is not valid yet")
		}
	}
	return id, nil
}

func tokenPart(s string) (Value, bool) {
	b, err := Decode(s)
	if err != nil {
		return Value{}, false
	}
	v, err := Scan(b)
	return v, err == nil && v.Kind() == Object
}

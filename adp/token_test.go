package adp

import (
	"crypto/ed25519"
	"strings"
	"testing"
)

func TestTokensKnownAnswers(t *testing.T) {
	var g struct {
		Origin  string
		Now     int64
		AgentID AgentID `json:"agent_id"`
		Tokens  []struct{ Name, Why, Token string }
	}
	golden(t, "tokens.json", &g)
	for _, c := range g.Tokens {
		id, err := VerifyToken(c.Token, g.Origin, g.Now)
		if c.Why == "" {
			if err != nil || id != g.AgentID {
				t.Errorf("%s: %q, %v", c.Name, id, err)
			}
			continue
		}
		if CodeOf(err) != InvalidToken || !strings.Contains(err.Error(), c.Why) || id != "" {
			t.Errorf("%s: %q, %v, want %q", c.Name, id, err, c.Why)
			continue
		}
		for part := range strings.SplitSeq(c.Token, ".") {
			if len(part) > 8 && strings.Contains(err.Error(), part) {
				t.Errorf("%s: the refusal quotes the token", c.Name)
			}
		}
	}
}

func TestSignTokenWindow(t *testing.T) {
	key := seedKey(3)
	const origin, now = "http://localhost:8080", 1779753700
	want := NewAgentID(key.Public().(ed25519.PublicKey))
	for _, c := range []struct {
		ttl, at int64
		ok      bool
	}{
		{300, now, true}, {300, now + 300, true}, {300, now + 301, false}, {1, now, true}, {300, now - 60, true}, {300, now - 61, false},
		{0, now, false}, {-1, now, false}, {301, now, false}, {60, now + 60, true}, {60, now + 61, false},
	} {
		token, err := SignToken(key, origin, now, c.ttl)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := VerifyToken(token, origin, c.at); (err == nil) != c.ok || c.ok && id != want {
			t.Errorf("ttl %d at %+d: %q, %v", c.ttl, c.at-now, id, err)
		}
	}
	token, err := SignToken(key, origin, now, 300)
	if err != nil {
		t.Fatal(err)
	}
	for i := range token { // every one-character change
		c := byte('A')
		if token[i] == 'A' {
			c = 'B'
		}
		bad := token[:i] + string(c) + token[i+1:]
		if _, err := VerifyToken(bad, origin, now); CodeOf(err) != InvalidToken {
			t.Fatalf("character %d changed: %v", i, err)
		}
	}
	if _, err := SignToken(key, origin, 1<<53, 300); err == nil {
		t.Error("a time beyond 2^53-1 was signed")
	}
}

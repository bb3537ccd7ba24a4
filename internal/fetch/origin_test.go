package fetch

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestOrigin(t *testing.T) {
	for _, tt := range []struct{ raw, strict, lax string }{ // "" = refused
		{"https://example.com", "https://example.com", "https://example.com"},
		{"HTTPS://Example.COM:443/", "https://example.com", "https://example.com"},
		{"https://example.com:8443", "https://example.com:8443", "https://example.com:8443"},
		{"https://example.com:80", "https://example.com:80", "https://example.com:80"},
		{"https://xn--bcher-kva.example/", "https://xn--bcher-kva.example", "https://xn--bcher-kva.example"},
		{"https://8.8.8.8", "https://8.8.8.8", "https://8.8.8.8"},
		{"https://[2606:4700:4700:0:0:0:0:1111]:443", "https://[2606:4700:4700::1111]", "https://[2606:4700:4700::1111]"},
		{"http://example.com", "", "http://example.com"},
		{"http://example.com:80/", "", "http://example.com"},
		{"http://127.0.0.1:8080", "", "http://127.0.0.1:8080"},
		{"http://[::1]:8080", "", "http://[::1]:8080"},
		{"http://localhost:8080", "", "http://localhost:8080"},
		{"https://a.localhost", "", "https://a.localhost"},
		{"https://10.0.0.1", "", "https://10.0.0.1"},
		{"http://8.8.8.8", "", ""},
		{"https://169.254.169.254", "", ""},
		{"https://0.0.0.0", "", ""},
		{"https://[::ffff:8.8.8.8]", "", ""},
		{"https://[fe80::1%25eth0]", "", ""},
		{"https://user@example.com", "", ""},
		{"https://@example.com", "", ""},
		{"https://example.com/path", "", ""},
		{"https://example.com//", "", ""},
		{"https://example.com/?q", "", ""},
		{"https://example.com?", "", ""},
		{"https://example.com#", "", ""},
		{"https://example.com.", "", ""},
		{"https://example..com", "", ""},
		{"https://-a.example", "", ""},
		{"https://a_b.example", "", ""},
		{"https://bücher.example", "", ""},
		{"https://exa%6Dple.com", "", ""},
		{"https://example.com:", "", ""},
		{"https://example.com:0", "", ""},
		{"https://example.com:0443", "", ""},
		{"https://example.com:65536", "", ""},
		{"https://example.com:https", "", ""},
		{"https://127.1", "", ""},
		{"https://2130706433", "", ""},
		{"https://0x7f.1", "", ""},
		{"https://a.0x7f", "", ""},
		{"https://127.0.0.01", "", ""},
		{"https://::1", "", ""},
		{"https://[::1", "", ""},
		{"https://[127.0.0.1]", "", ""},
		{"https://", "", ""},
		{"https:example.com", "", ""},
		{"//example.com", "", ""},
		{"example.com", "", ""},
		{"ftp://example.com", "", ""},
		{"javascript:alert(1)", "", ""},
		{"https://exam ple.com", "", ""},
		{"https://example.com\\@evil.example", "", ""},
		{" https://example.com", "", ""},
		{"https://example.com\n", "", ""},
		{"https://" + strings.Repeat("a", 64) + ".example", "", ""},
		{"https://" + strings.Repeat("a.", 130) + "example", "", ""},
		{"https://example.com/" + strings.Repeat("a", maxURL), "", ""},
		{"", "", ""},
	} {
		for _, allow := range []bool{false, true} {
			want := tt.strict
			if allow {
				want = tt.lax
			}
			got, err := Origin(tt.raw, allow)
			if got != want || (err == nil) != (want != "") {
				t.Errorf("Origin(%q, %v) = %q, %v; want %q", tt.raw, allow, got, err, want)
			}
			if k := KindOf(err); err != nil && k != BadURL && k != Blocked {
				t.Errorf("Origin(%q, %v): kind %q", tt.raw, allow, k)
			}
		}
	}
}

func TestOriginErrorsTellWhatToDo(t *testing.T) {
	for raw, want := range map[string]string{
		"https://bücher.example":     "A-label",
		"http://example.com":         "use https",
		"https://10.0.0.1":           "allow_private_addresses",
		"https://127.1":              "four decimal numbers",
		"https://secret@example.com": "remove the part before @",
	} {
		_, err := Origin(raw, false)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Origin(%q): %v, want a text with %q", raw, err, want)
		}
	}
}

func TestAuthority(t *testing.T) {
	for origin, want := range map[string]string{
		"https://example.com": "example.com", "http://127.0.0.1:8080": "127.0.0.1:8080", "https://[2a00::1]:8443": "[2a00::1]:8443",
	} {
		if got := Authority(origin); got != want {
			t.Errorf("Authority(%q) = %q, want %q", origin, got, want)
		}
	}
}

func TestRedactHidesSecrets(t *testing.T) {
	for _, raw := range []string{"https://h/p?token=hidden", "https://user:hidden@h/p", "https://h/?hidden", "https://a@hidden@h/"} {
		if got := redact(raw); strings.Contains(got, "hidden") {
			t.Errorf("redact(%q) = %q", raw, got)
		}
	}
	if got := redact("https://h/\x1b[31m"); strings.ContainsRune(got, 0x1b) {
		t.Errorf("a control character got through: %q", got)
	}
}

func FuzzOrigin(f *testing.F) {
	for _, s := range []string{"https://Example.com:443/", "http://[::1]:80", "https://127.1", "https://a@b", "https://xn--a.b:1"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, raw string, allow bool) {
		o, err := Origin(raw, allow)
		if err != nil {
			if k := KindOf(err); k != BadURL && k != Blocked {
				t.Fatalf("kind %q of %v", k, err)
			}
			return
		}
		if again, err := Origin(o, allow); err != nil || again != o {
			t.Fatalf("Origin(%q) = %q, and that gives %q, %v", raw, o, again, err)
		}
		if o != strings.ToLower(o) || strings.ContainsAny(o, " @?#\\%") || strings.Count(o, "/") != 2 {
			t.Fatalf("Origin(%q) = %q is not normal", raw, o)
		}
		u, err := url.Parse(o)
		if err != nil || u.Host != Authority(o) {
			t.Fatalf("%q: host %v, authority %q, %v", o, u, Authority(o), err)
		}
		if a, err := netip.ParseAddr(u.Hostname()); err == nil && !allow && !Global(a) {
			t.Fatalf("%q holds a private address", o)
		}
	})
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"https://example.com/a/b?c=d", "https://[2a00::1]/%2e", "http://127.0.0.1:1/x", "https://h:443"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	strict, lax := New(Options{}), New(Options{AllowPrivate: true})
	f.Fuzz(func(t *testing.T, raw string, allow bool) {
		c := strict
		if allow {
			c = lax
		}
		u, err := c.CheckURL(raw)
		if err != nil {
			_ = err.Error()
			return
		}
		if u.User != nil || u.Fragment != "" || u.Opaque != "" || (u.Scheme == "http" && !allow) {
			t.Fatalf("CheckURL(%q) = %#v", raw, u)
		}
		if again, err := c.CheckURL(u.String()); err != nil || again.Host != u.Host || again.Scheme != u.Scheme {
			t.Fatalf("CheckURL(%q) = %v, and that gives %v, %v", raw, u, again, err)
		}
	})
}

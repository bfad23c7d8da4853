package hosts

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"api.example.com":        "api.example.com:443 false",
		"API.Example.COM":        "api.example.com:443 false",
		"*.example.com:8443":     "example.com:8443 true",
		"*":                      ":443 true",
		"*:80":                   ":80 true",
		"localhost:3000":         "localhost:3000 false",
		"10.0.0.1":               "10.0.0.1:443 false",
		"10.0.0.1:22":            "10.0.0.1:22 false",
		"xn--mnchen-3ya.example": "xn--mnchen-3ya.example:443 false",
		"my_service.local:1":     "my_service.local:1 false",
		"1password.com":          "1password.com:443 false",

		strings.Repeat("a.", 124) + "a:80": strings.Repeat("a.", 124) + "a:80 false",
	} {
		p, err := Parse(text)
		if got := fmt.Sprintf("%v %v", p.host, p.wild); got != want || err != nil {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", ":443", "a:", "a:0", "a:65536", "a:-1", "a:+1", "a:443x", "a:000443", "a b", "a/b", "https://a", "u@a",
		"a:1:2", "*.", "*a", "a.*", "**", "*.10.0.0.1", "*.[::1]", "*.*.a", "a..b", ".a", "a..", "-a", "a-.b", "127.1",
		"2130706433", "0x7f.0x0.0x0.0x1", "0177.0.0.1", "10.0.0.256", "a.1", "[2001:db8::1]", "a.", "1host", "_",
		strings.Repeat("a.", 125) + "a:443", "::1", "[::1", "::1]", "[::1]443", "[fe80::1%eth0]:1", "[10.0.0.1]",
		"[a]", "münchen.example", "a\x00b", "a\r\nb", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a",
	} {
		if p, err := Parse(text); err == nil {
			t.Errorf("%q is read as %+v", text, p)
		}
	}
}

func TestMatch(t *testing.T) {
	l, err := ParseList([]string{"example.com", "*.example.com", "*.example.com:80", "10.0.0.1:22", "git.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Match{
		"example.com:443": InFull, "EXAMPLE.com.:443": InFull, "example.com:80": None, "www.example.com:443": ByWild,
		"a.b.example.com:80":  ByWild,
		"git.example.com:443": InFull, "example.com.evil.org:443": None, "badexample.com:443": None, "10.0.0.1:22": InFull, "10.0.0.1:443": None,
		"[::ffff:10.0.0.1]:22": InFull, "[fd00::1]:443": None,
	} {
		h, err := ParseHost(text, 0)
		if got := l.Match(h); err != nil || got != want {
			t.Errorf("%s: %v (%v), want %v", text, got, err, want)
		}
	}
	every, err := ParseList([]string{"*"})
	if err != nil {
		t.Fatal(err)
	}
	if h := (Host{Name: "anything.example", Port: 443}); every.Match(h) != ByWild {
		t.Error("* does not name every host")
	}
	for _, text := range []string{
		"a", "a:0", "a:01", "a:65536", "[::1]", "[::1:1", "::1:1", "[fe80::1%eth0]:1", "[10.0.0.1]:1", "127.1:1", "0x7f.1:1",
		"010.0.0.1:1", "u@a:1", "a b:1", ":1", ".:1", "é:1", "a%2e:1",
	} {
		if h, err := ParseHost(text, 0); err == nil {
			t.Errorf("%q is read as %v", text, h)
		}
	}
	if h := (Host{Name: "example.com", Port: 22}); fmt.Sprint(l.Ports(h)) != "[443]" {
		t.Errorf("ports of %v: %v", h, l.Ports(h))
	}
	if _, err := ParseList([]string{"a", "b c"}); err == nil || !strings.Contains(err.Error(), `"b c"`) {
		t.Errorf("the error does not name the host: %v", err)
	}
}

// FuzzParse: what is accepted is written in one form, which is read again as the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a.example:80", "*.a", "*", "[::1]:1", "10.1.2.3", "127.1", "a@b:1", "*:*"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if p.wild {
			return
		}
		again, err := ParseHost(p.host.String(), 0)
		if err != nil || again != p.host || p.match(again) != InFull {
			t.Errorf("%q is %v, which is read as %v (%v)", text, p.host, again, err)
		}
		if p.host.Addr.IsValid() == (p.host.Name != "") || p.host.Port == 0 {
			t.Errorf("%q is %+v", text, p.host)
		}
	})
}

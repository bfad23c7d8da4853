package signature

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzVerify sends anything to every row: nothing panics, nothing is accepted
// that Sign did not make, and what is accepted is of that body alone.
func FuzzVerify(f *testing.F) {
	all := All()
	verifiers := make([]*Verifier, len(all))
	for i, s := range all {
		v, r := signed(f, s, bodyFor(s))
		verifiers[i] = v
		form := s.Forms[0]
		f.Add(i, r.Header.Get(form.Signature), r.Header.Get(form.Timestamp), r.Header.Get(form.ID), r.URL, r.Body)
	}
	f.Fuzz(func(t *testing.T, i int, signature, ts, id, url string, body []byte) {
		i = (i%len(all) + len(all)) % len(all)
		s, v := all[i], verifiers[i]
		r := &Request{Method: "POST", URL: url, Header: http.Header{}, Body: body, Now: now}
		for _, name := range proofHeaders(s) {
			r.Header.Set(name, "value-1")
		}
		for _, form := range s.Forms {
			for name, value := range map[string]string{form.Signature: signature, form.Timestamp: ts, form.ID: id} {
				if name != "" {
					r.Header.Set(name, value)
				}
			}
			for _, name := range form.Also {
				if name != "X-Contentful-Signed-Headers" {
					r.Header.Del(name)
				}
			}
		}
		if s.Name == "contentful" {
			r.Header.Set(contentfulList, id)
		}
		err := v.Verify(r)
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Reason == "" {
				t.Errorf("%s: %#v", s.Name, err)
			}
			v.Challenge(r)
			s.Greet(r)
			return
		}
		v.Challenge(r)
		if s.BindsBody() {
			r.Body = append(slices.Clone(body), ' ')
			if v.Verify(r) == nil {
				t.Errorf("%s: accepted %q with another body too", s.Name, signature)
			}
		}
	})
}

// FuzzHeaders reads a signature header in each list form: nothing that comes out
// is more than what the header holds, or over the caps.
func FuzzHeaders(f *testing.F) {
	f.Add("t=1,v1=ab,v1=cd,v0=ef")
	f.Add("v1,ab v1a,cd v1, ef")
	f.Add("sha256=ab,,=,v1==,t=")
	f.Add("1700000000000,ab,cd")
	f.Fuzz(func(t *testing.T, value string) {
		for _, s := range All() {
			var p presented
			err := (&engine{scheme: s}).split("X", value, &p)
			if err != nil && err.Reason != HeaderMalformed || p.n > maxCandidates {
				t.Fatalf("%s: %d candidates, %v", s.Name, p.n, err)
			}
			rest := value
			for i := range p.n {
				at := strings.Index(rest, s.Parse.Prefix+p.candidate(i))
				if at < 0 || p.candidate(i) == "" {
					t.Fatalf("%s: candidate %q is not in %q", s.Name, p.candidate(i), rest)
				}
				rest = rest[at+len(s.Parse.Prefix)+len(p.candidate(i)):]
			}
		}
	})
}

// FuzzJWT opens any text as a token: only what the key signed opens.
func FuzzJWT(f *testing.F) {
	s, _ := Lookup("livekit")
	_, r := signed(f, s, "{}")
	f.Add(r.Header.Get("Authorization"))
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("..")
	secret, _ := secretsFor(s)
	f.Fuzz(func(t *testing.T, token string) {
		c, err := openJWT(strings.TrimPrefix(token, "Bearer "), [][]byte{[]byte(secret)})
		if (c == nil) == (err == nil) {
			t.Fatalf("%v %v", c, err)
		}
		if _, err := openJWT(strings.TrimPrefix(token, "Bearer "), [][]byte{[]byte("other")}); err == nil {
			t.Fatalf("%q opens with another key", token)
		}
	})
}

// FuzzField looks fields up in anything: what is found is what encoding/json
// finds.
func FuzzField(f *testing.F) {
	f.Add([]byte(`{"a":{"b":"c"}}`), "a.b")
	f.Add([]byte(` { "a" : [1, {"x":"}"}] , "a":{"b" : -1.5e3 }, "\u0061": 7 } `), "a")
	f.Add([]byte(`{"value":[{"s":"x"},{"s":"y"}]}`), "value.*.s")
	f.Add([]byte(`{"value" : [ {"s":"\ud83d\ude00"} , {"s":"é"} ] }`), "value.*.s")
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		got, ok := fields(body, path)
		var want []string
		wanted := utf8.Valid(body) && decodedFields(body, strings.Split(path, "."), &want)
		if strings.Count(path, "*") > 1 || strings.Contains(path, "*") && !strings.Contains(path, ".*.") || strings.HasPrefix(path, "*") {
			return // no path of the table's kind
		}
		if ok != wanted || ok && !slices.Equal(got, want) {
			t.Errorf("%q of %q is %q %v, want %q %v", path, body, got, ok, want, wanted)
		}
		if ok {
			if changed := withField(body, strings.Split(path, "."), json.RawMessage(`"z"`)); !json.Valid(changed) {
				t.Errorf("%q became %q", body, changed)
			}
		}
	})
}

// decodedFields is fields by way of encoding/json.
func decodedFields(value json.RawMessage, path []string, found *[]string) bool {
	if len(path) == 0 {
		text := string(value)
		if value[0] == '"' && json.Unmarshal(value, &text) != nil || text == "" || len(text) > maxHeader && value[0] == '"' {
			return false
		}
		*found = append(*found, text)
		return value[0] == '"' || strings.IndexByte("-0123456789", value[0]) >= 0
	}
	if path[0] == "*" {
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return false
		}
		for _, item := range items {
			if !decodedFields(item, path[1:], found) {
				return false
			}
		}
		return len(items) > 0
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil {
		return false
	}
	next, ok := object[path[0]]
	return ok && decodedFields(next, path[1:], found)
}

// FuzzTokens: only the secret itself passes.
func FuzzTokens(f *testing.F) {
	for _, value := range []string{"Bearer a-b", "bearer  a-b ", "a-b", "Bearer", "Bearer a-b a-b", ""} {
		f.Add(value)
	}
	bearer, _ := Bearer("a-b")
	path, _ := PathToken("a-b")
	f.Fuzz(func(t *testing.T, value string) {
		passed := bearer.Verify(&Request{Header: http.Header{"Authorization": {value}}}) == nil
		fields := strings.Split(strings.Trim(value, " "), " ")
		if want := len(value) <= maxHeader && strings.EqualFold(fields[0], "bearer") && value[0] != ' ' && fields[len(fields)-1] == "a-b" &&
			strings.Join(fields[1:len(fields)-1], "") == ""; passed != want {
			t.Errorf("%q: %v", value, passed)
		}
		if passed := path.Verify(&Request{PathToken: value}) == nil; passed != (value == "a-b") {
			t.Errorf("path %q: %v", value, passed)
		}
	})
}

package server

import (
	"bufio"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/factory/signature"
	"triphammer/server/store"
)

// TestBasePath: behind a base URL with a path everything is under it, by a proxy
// that takes the path off and by one that leaves it: ingress URLs and the
// signatures over them, pages and their links, files, forms, redirects, the
// cookie, live streams and the description of the API.
func TestBasePath(t *testing.T) {
	const base = "/tools/triphammer"
	f := newFixtureWith(t, options{base: base, files: fstest.MapFS{
		"webhooks/square.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: square\n")},
	}})
	manage := f.key("admin", "manage")
	target, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	mux := http.NewServeMux()
	mux.Handle(base+"/", http.StripPrefix(base, proxy))
	strips := httptest.NewServer(mux)
	t.Cleanup(strips.Close)
	scheme, _ := signature.Lookup("square")
	for name, origin := range map[string]string{"passed on": f.url, "taken off": strips.URL} {
		t.Run(name, func(t *testing.T) {
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			client := &http.Client{Jar: jar}
			do := func(method, address, body string, header ...string) (*http.Response, string) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				for i := 0; i < len(header); i += 2 {
					req.Header.Set(header[i], header[i+1])
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				text, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp, string(text)
			}
			// here is where an address that the server gives out is reached: at this origin.
			here := func(address string) string {
				rest, ok := strings.CutPrefix(address, f.url+base+"/")
				if !ok {
					t.Fatalf("%s is not below the base URL", address)
				}
				return origin + base + "/" + rest
			}
			// A delivery whose signature covers the address.
			hook := field(t, f.get("/api/v1/webhooks/square", manage), "url")
			signed := &signature.Request{Method: http.MethodPost, URL: hook, Header: http.Header{}, Body: []byte(`{"from":"` + name + `"}`)}
			if err := scheme.Sign(hookSecret, signed); err != nil {
				t.Fatal(err)
			}
			header := []string{}
			for name := range signed.Header {
				header = append(header, name, signed.Header.Get(name))
			}
			if resp, text := do(http.MethodPost, here(hook), string(signed.Body), header...); resp.StatusCode != http.StatusAccepted {
				t.Errorf("a signed delivery: %d %s", resp.StatusCode, text)
			}
			hook = field(t, f.get("/api/v1/webhooks/hook", manage), "url")
			resp, text := do(http.MethodPost, here(hook), `{"n":1}`, "Authorization", "Bearer "+hookSecret, "X-Service-Delivery-Id", name)
			if resp.StatusCode != http.StatusAccepted {
				t.Fatalf("a delivery: %d %s", resp.StatusCode, text)
			}
			if told := field(t, f.get("/api/v1/status", manage), "base_url"); told != f.url+base {
				t.Errorf("the status tells the base URL %s", told)
			}
			// The pages, by the link that opens them: all that they point at is there.
			link := field(t, f.do("POST", "/api/v1/auth/links", manage, ""), "url")
			if _, text = do(http.MethodGet, here(link), ""); !strings.Contains(text, `action="`+base+`/auth/login?token=`) {
				t.Fatalf("the page of the link:\n%s", text)
			}
			resp, text = do(http.MethodPost, here(link), "", "Sec-Fetch-Site", "same-origin")
			if resp.StatusCode != http.StatusOK || resp.Request.URL.Path != base+"/" || !strings.Contains(text, "Newest deliveries") {
				t.Fatalf("signing in ends at %s: %d\n%s", resp.Request.URL, resp.StatusCode, text)
			}
			link = field(t, f.do("POST", "/api/v1/auth/links", manage, `{"to":"/runs"}`), "url")
			if resp, _ := do(http.MethodGet, here(link), ""); resp.StatusCode != http.StatusOK || resp.Request.URL.Path != base+"/runs" {
				t.Errorf("a link to a page ends at %s: %d", resp.Request.URL, resp.StatusCode)
			}
			if resp, _ := do(http.MethodGet, f.url+base, ""); origin == f.url && resp.StatusCode != http.StatusOK {
				t.Errorf("without the last slash: %d", resp.StatusCode)
			}
			at, err := url.Parse(origin + base + "/")
			if err != nil {
				t.Fatal(err)
			}
			if len(jar.Cookies(at)) != 1 {
				t.Error("no cookie under the path")
			}
			if root, _ := url.Parse(origin + "/"); len(jar.Cookies(root)) != 0 {
				t.Error("the cookie goes to what else is at this origin")
			}
			seen := map[string]bool{}
			for todo := []string{base + "/"}; len(todo) > 0; todo = todo[1:] {
				resp, text := do(http.MethodGet, origin+todo[0], "")
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %d", todo[0], resp.StatusCode)
				}
				for _, m := range regexp.MustCompile(`(href|action)="([^"]*)"`).FindAllStringSubmatch(text, -1) {
					if strings.HasPrefix(m[2], "#") || strings.HasPrefix(m[2], "https://") { // such as a sender's own page
						continue
					}
					if m[2] = html.UnescapeString(m[2]); !strings.HasPrefix(m[2], base+"/") {
						t.Errorf("%s points at %s", todo[0], m[2])
						continue
					}
					if m[1] == "href" && !seen[m[2]] {
						seen[m[2]] = true
						todo = append(todo, m[2])
					}
				}
			}
			for _, want := range []string{base + "/deliveries", base + "/runs"} {
				if !seen[want] {
					t.Errorf("nothing points at %s; seen %v", want, seen)
				}
			}
			resp, _ = do(http.MethodPost, origin+base+"/factories/default/sync", "", "Sec-Fetch-Site", "same-origin")
			if resp.StatusCode != http.StatusOK || resp.Request.URL.Path != base+"/definition" {
				t.Errorf("the button: %d at %s", resp.StatusCode, resp.Request.URL)
			}
			// A live stream, and the description of the API.
			runs, err := f.store.Runs.List(t.Context(), store.RunQuery{Limit: 1})
			if err != nil || len(runs) == 0 {
				t.Fatal(runs, err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, origin+base+"/api/v1/agent/runs/"+runs[0].ID.String()+"/events", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+manage)
			stream, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stream.Body).ReadString('\n')
			if err != nil || stream.StatusCode != http.StatusOK || line == "" {
				t.Errorf("the stream: %d %q, %v", stream.StatusCode, line, err)
			}
			_ = stream.Body.Close()
			if _, text := do(http.MethodGet, origin+base+"/openapi.yaml", ""); !strings.Contains(text, "\n  - url: "+base+"/\n") {
				t.Error("the description of the API names another server")
			}
			resp, _ = do(http.MethodPost, origin+base+"/auth/logout", "", "Sec-Fetch-Site", "same-origin")
			if resp.StatusCode != http.StatusOK || len(jar.Cookies(at)) != 0 {
				t.Errorf("signed out: %d, cookies %v", resp.StatusCode, jar.Cookies(at))
			}
		})
	}
	if resp, err := http.Get(f.url + base + "x/healthz"); err != nil || resp.StatusCode != http.StatusNotFound || resp.Body.Close() != nil {
		t.Errorf("what only begins like the path: %+v, %v", resp, err)
	}
}

// TestBaseOfRoute: a path that begins like one of the server's own is refused.
func TestBaseOfRoute(t *testing.T) {
	for _, base := range []string{"/api", "/webhooks/x", "/runs", "/static", "/healthz"} {
		_, err := New(Config{BaseURL: "https://hammer.example.com" + base})
		if err == nil || !strings.Contains(err.Error(), "which the server itself uses") {
			t.Errorf("%s: %v", base, err)
		}
	}
}

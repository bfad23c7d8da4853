package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/server/api"
)

// TestDeliveriesAbout: a list of deliveries says what happened, who did it, and, if nothing matched,
// which condition was the nearest; also of what older definitions decided (SPEC 7.1).
func TestDeliveriesAbout(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{
		"webhooks/github.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\n")},
		"webhooks/idle.yaml":   {Data: []byte("secretName: S\n")},
		"automations/other.md": {Data: []byte("---\nenvironmentId: e\ntriggers:\n- {provider: github, event: push, filter: {branches: [main]}}\n---\nDo it.\n")},
	}})
	key := f.key("reader", "read")
	f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":7,"type":"charge"}`)
	f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":1}`)
	f.push("1")
	f.do("POST", ingress+f.uids()["hook"], "wrong", `{"n":1}`)
	check := func(when string) {
		t.Helper()
		got := f.get("/api/v1/deliveries?about=true&limit=4", key)
		if got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
		var told []string
		for _, d := range read[api.List[api.Delivery]](t, got).Entries {
			text := d.Event + "|" + d.Person
			if m := d.Nearest; m != nil {
				text += "|" + m.Automation + " " + m.Path + " " + m.Got
			}
			told = append(told, text)
		}
		if got, want := strings.Join(told, "\n"), "|\npush|ada\n|\ncharge||a payload.n 7"; got != want {
			t.Errorf("%s, the list says\n%s\n\nnot\n%s", when, got, want)
		}
	}
	check("while the definitions are live")
	f.remove("webhooks/idle.yaml")
	check("when others are live")
	if d := read[api.List[api.Delivery]](t, f.get("/api/v1/deliveries", key)).Entries; d[1].Event != "" || d[3].Nearest != nil {
		t.Errorf("nobody asked, and the list says %+v", d)
	}
	if d := read[api.DeliveryDetail](t, f.get("/api/v1/deliveries/"+f.push("2"), key)); d.Event != "push" || d.Person != "ada" {
		t.Errorf("the delivery says %q by %q", d.Event, d.Person)
	}
	f.github("issues", "3", `{"action":"opened","issue":{"id":1,"number":1},"repository":{"id":1,"full_name":"acme/app"},"sender":{"login":"712020:bo"}}`)
	for i := range siftPage + 3 { // the pushes are not on the first page that is read
		f.do("POST", ingress+f.uids()["hook"], hookSecret, fmt.Sprintf(`{"i":%d,"type":"charge"}`, i))
	}
	for query, want := range map[string]int{
		"event=push": 2, "event=PUSH&limit=1": 1, "event=push&text=main": 2, "event=push&webhook=hook": 0, "event=charge&limit=500": siftPage + 4, "event=char&limit=500": siftPage + 4, "event=nothing": 0,
		"person=ADA": 2, "person=github:ada&event=push": 2, "person=grace": 0, "person=712020:bo": 1, "person=jira:712020:bo": 1, "person=bo": 0, "automation=a": 1, "automation=a&person=ada": 0, "automation=other&limit=500": 2,
	} {
		list := read[api.List[api.Delivery]](t, f.get("/api/v1/deliveries?"+query, key))
		for list.PageInfo.HasNextPage && len(list.Entries) < want { // each request looks for a moment
			more := read[api.List[api.Delivery]](t, f.get("/api/v1/deliveries?"+query+"&cursor="+list.PageInfo.NextCursor, key))
			list.Entries, list.PageInfo = append(list.Entries, more.Entries...), more.PageInfo
		}
		if len(list.Entries) != want {
			t.Errorf("%s selects %d deliveries, not %d", query, len(list.Entries), want)
		}
	}
	cookie := f.signIn(f.link(f.key("m", "read", "runs", "operate", "manage")))
	if body := string(f.do("GET", "/deliveries", "", "", "Cookie", cookie).body); !strings.Contains(body, "nearest a: payload.n is 7") || !strings.Contains(body, "by <bdi>ada</bdi>") {
		t.Errorf("the page lacks why nothing matched, or who pushed:\n%s", body)
	}
}

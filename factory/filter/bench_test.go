package filter

import (
	"fmt"
	"strings"
	"testing"
)

// pullRequest is a body of 7.5 KB in the shape of a forge's pull-request event.
func pullRequest(repository string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"action":"opened","number":42,"repository":{"id":1,"full_name":%q,"private":false,"owner":{"login":"acme"}},"pull_request":{"state":"open","labels":[{"name":"bug"},{"name":"urgent"}],"user":{"login":"kim"},"links":[`, repository)
	for i := 0; b.Len() < 7300; i++ {
		fmt.Fprintf(&b, `{"rel":"item-%d","href":"https://forge.example/acme/app/pulls/42/items/%d","count":%d,"open":true},`, i, i, i*17)
	}
	b.WriteString(`null]},"sender":{"login":"kim","type":"User"}}`)
	return []byte(b.String())
}

// BenchmarkSetMatch has filters that differ in one value, and filters whose
// other sets differ too but share a value that is in the body: neither may cost
// more for being many (SPEC 8.4).
func BenchmarkSetMatch(b *testing.B) {
	body := pullRequest("acme/app-7")
	for _, shape := range []struct{ name, pattern string }{
		{"alike", `{"action":["opened","reopened"],"repository":{"full_name":["acme/app-%[1]d"]},"pull_request":{"labels":{"name":["bug"]}}}`},
		{"shared", `{"action":["opened","other-%[1]d"],"repository":{"full_name":["acme/app-%[1]d"]},"pull_request":{"user":{"login":["kim","user-%[1]d"]}}}`},
		{"elements", `{"pull_request":{"links":{"open":[true,%[1]d],"rel":["item-3"]}},"repository":{"full_name":["acme/app-%[1]d"]}}`},
	} {
		for _, n := range []int{1, 100, 10000} {
			filters := make([]*Filter, n)
			for i := range filters {
				filters[i] = compile(b, fmt.Sprintf(shape.pattern, i+7))
			}
			set := NewSet(pairs(filters...))
			dst := make([]int, 0, 8)
			b.Run(fmt.Sprintf("%s/filters=%d", shape.name, n), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					got, err := set.Match(nil, body, dst[:0])
					if err != nil || len(got) != 1 {
						b.Fatal(got, err)
					}
				}
			})
		}
	}
	sent := map[string]string{"Content-Type": "application/json", "User-Agent": "forge/1", "X-Github-Event": "pull_request"}
	for _, n := range []int{1, 100, 10000} {
		all := make([]Pair, n)
		for i := range all {
			all[i] = Pair{
				Headers: compileHeaders(b, `{"X-GitHub-Event":["pull_request"]}`),
				Payload: compile(b, fmt.Sprintf(`{"action":["opened"],"repository":{"full_name":["acme/app-%d"]}}`, i+7)),
			}
		}
		set := NewSet(all)
		dst := make([]int, 0, 8)
		b.Run(fmt.Sprintf("headers/filters=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				got, err := set.Match(sent, body, dst[:0])
				if err != nil || len(got) != 1 {
					b.Fatal(got, err)
				}
			}
		})
	}
}

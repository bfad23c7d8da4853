package filter

import (
	"encoding/json"
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

func BenchmarkSetMatch(b *testing.B) {
	body := pullRequest("acme/app-7")
	for _, n := range []int{1, 100, 10000} {
		filters := make([]*Filter, n)
		for i := range filters {
			filters[i] = compile(b, fmt.Sprintf(`{"action":["opened","reopened"],"repository":{"full_name":["acme/app-%d"]},"pull_request":{"labels":{"name":["bug"]}}}`, i+7))
		}
		set := NewSet(filters)
		dst := make([]int, 0, 8)
		b.Run(fmt.Sprintf("filters=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				got, err := set.Match(body, dst[:0])
				if err != nil || len(got) != 1 {
					b.Fatal(got, err)
				}
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	body := pullRequest("acme/app-7")
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if Check(body) != nil {
				b.Fatal("invalid")
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if !json.Valid(body) {
				b.Fatal("invalid")
			}
		}
	})
}

package hosted

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sizeOf(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil {
			sum += info.Size()
		}
		return gone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestForgedPacks: git gets no pack that says less of itself than it becomes.
func TestForgedPacks(t *testing.T) {
	url := begin(t, open(t))
	packed := func(text string) string {
		var b bytes.Buffer
		z := zlib.NewWriter(&b)
		_, _ = io.WriteString(z, text)
		_ = z.Close()
		return b.String()
	}
	pack := func(count uint32, entries ...string) string {
		return "PACK\x00\x00\x00\x02" + string(binary.BigEndian.AppendUint32(nil, count)) + strings.Join(entries, "")
	}
	size := func(n uint64) string { return string(binary.AppendUvarint(nil, n)) }
	base := strings.Repeat("\x01", 20)
	delta := func(makes uint64) string { // 9 bytes of deltas say that they make any size
		text := size(1) + size(makes) + "\x01a"
		return string([]byte{hashDelta<<4 | byte(len(text))}) + base + packed(text)
	}
	for name, c := range map[string]struct{ pack, want string }{
		"a large delta":          {pack(1, delta(1<<30)), "a file of the push"},
		"many deltas":            {pack(40, strings.Repeat(delta(50<<20), 40)), "in all their versions"},
		"many objects":           {pack(maxObjects + 1), "objects"},
		"a size that overflows":  {pack(1, "\xbf"+strings.Repeat("\xff", 12)+"\x01"+packed("a")), "broke off"},
		"a size near overflow":   {pack(1, "\xbf"+strings.Repeat("\xff", 8)+"\x01"+packed("a")), "a file of the push"},
		"a delta that overflows": {pack(1, string([]byte{hashDelta<<4 | 15})+base+packed(size(1)+strings.Repeat("\xff", 12)+"\x01a")), "broke off"},
		"longer than it says":    {pack(1, "\x31"+packed("ab")), "broke off"},
		"shorter than it says":   {pack(1, "\x33"+packed("ab")), "broke off"},
		"the half":               {pack(2, "\x32"+packed("ab")), "broke off"},
		"no pack":                {"PACL", "broke off"},
	} {
		command := strings.Repeat("0", 40) + " " + strings.Repeat("1", 40) + " refs/heads/x\x00report-status"
		body := fmt.Sprintf("%04x%s0000%s", len(command)+4, command, c.pack)
		resp, err := http.Post(url+"/"+Push, "application/x-git-receive-pack-request", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(answer), c.want) || !strings.Contains(string(answer), "ng refs/heads/x") {
			t.Errorf("%s: %v %q", name, err, answer)
		}
	}
}

package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/server/secret"
)

// kept is what a store holds that is served or run again, by how it is asked for.
type kept map[string]func(ctx context.Context, s *Store) (string, error)

// fillAll fills a store with some of everything, and returns how to read it and
// what it holds.
func fillAll(t *testing.T, s *Store) (kept, map[string]string) {
	t.Helper()
	ctx, ask, want := t.Context(), kept{}, make(map[string]string)
	words := strings.Fields("opened closed pull request review deploy failed alert issue comment pushed commit branch")
	random := rand.New(rand.NewPCG(3, 4))
	text := func(words []string, n int) string {
		var b strings.Builder
		for b.Len() < n {
			b.WriteString(words[random.IntN(len(words))])
			b.WriteByte(' ')
		}
		return b.String()
	}
	var files []File
	for i := range 12 {
		files = append(files, File{Path: fmt.Sprintf("automations/a%02d.md", i), Data: []byte("---\ntriggers: []\n---\n" + text(words, 300)), Executable: i%2 == 0})
	}
	specs := make(map[[32]byte][]byte)
	var hashes [][32]byte
	for range 4 {
		data := []byte(`{"prompt":"` + text(words, 400) + `"}`)
		hashes = append(hashes, sha256.Sum256(data))
		specs[sha256.Sum256(data)] = data
	}
	apply := must[ApplyID](t)(s.Applies.Record(ctx, &Apply{
		Factory: "default", Commit: "c0ffee", Outcome: "applied", Plan: json.RawMessage("{}"), Diagnostics: json.RawMessage("[]"),
		Webhooks: []BoundWebhook{{"hook", "whk_1", "S", 1}, {"another", "whk_2", "S", 1}},
	}, files, specs))
	ask["files"] = func(ctx context.Context, s *Store) (string, error) {
		files, err := s.Applies.Files(ctx, apply)
		return fmt.Sprint(files), err
	}
	for hash := range specs {
		ask[fmt.Sprintf("spec %x", hash)] = func(ctx context.Context, s *Store) (string, error) {
			data, err := s.Specs.Get(ctx, hash)
			return string(data), err
		}
	}
	for i := range 40 {
		body := `{"n":` + fmt.Sprint(i) + `,"text":"` + text(words, random.IntN(3000)) + `"}`
		if i%10 == 0 { // not to be compressed, and longer than a page
			body = `"` + text([]string{secret.RandomText(700), secret.RandomText(900)}, 9000) + secret.RandomText(9000) + `"`
		}
		d := delivery(fmt.Sprint(i), body)
		if i%4 == 0 {
			d.Runs = []NewRun{{Factory: "default", Automation: "a", Source: SourceWebhook, Title: "a", SpecHash: hashes[i%len(hashes)]}}
		}
		r := must[Recorded](t)(s.Deliveries.Record(ctx, d))
		ask["payload "+r.ID.String()] = func(ctx context.Context, s *Store) (string, error) {
			body, err := s.Deliveries.Payload(ctx, r.ID)
			return string(body), err
		}
	}
	for i, lease := range must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 10, Lease: time.Minute})) {
		var events []Event
		for seq := range int64(5 + i) {
			data := must[[]byte](t)(json.Marshal(map[string]string{"text": text(words, 100)}))
			events = append(events, Event{Seq: seq + 1, At: s.Now(), Kind: "output", Data: data})
		}
		check(t, s.Transcripts.Append(ctx, lease, events))
		check(t, s.Leases.Finish(ctx, lease, Succeeded, "", nil))
		ask["transcript "+lease.RunID.String()] = func(ctx context.Context, s *Store) (string, error) {
			// In two reads, as it is served.
			some, err := s.Transcripts.List(ctx, lease.RunID, 0, 3)
			if err != nil || len(some) == 0 {
				return "", err
			}
			more, err := s.Transcripts.List(ctx, lease.RunID, some[len(some)-1].Seq, 100)
			return fmt.Sprint(some, more), err
		}
	}
	for what, read := range ask {
		want[what] = must[string](t)(read(ctx, s))
	}
	return ask, want
}

// flips flips bits all over a store's file, one at a time, and counts what came of
// reading everything that it holds.
type flips struct{ refused, damaged, same, wrong int }

func flipBits(t *testing.T, n int, trusting bool) (f flips) {
	t.Helper()
	dir := t.TempDir()
	key := must[*secret.Key](t)(secret.LoadOrCreateKey(filepath.Join(dir, "key")))
	cfg := Config{Path: filepath.Join(dir, "x.db"), Key: key, Existing: true, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	first := cfg
	first.Existing = false
	s := must[*Store](t)(Open(t.Context(), first))
	ask, want := fillAll(t, s)
	check(t, s.Close())
	whole := must[[]byte](t)(os.ReadFile(cfg.Path))
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range n {
		// Each stretch of the file has its flip.
		at := (i*len(whole) + random.IntN(len(whole))) / n
		bit := byte(1) << random.IntN(8)
		flipped := bytes.Clone(whole)
		flipped[at] ^= bit
		check(t, os.WriteFile(cfg.Path, flipped, 0o600))
		for _, suffix := range []string{"-wal", "-shm"} {
			_ = os.Remove(cfg.Path + suffix)
		}
		s, err := Open(t.Context(), cfg)
		if err != nil {
			f.refused++
			continue
		}
		s.trusting = trusting
		outcome := &f.same
		for what, read := range ask {
			got, err := read(t.Context(), s)
			switch {
			case err != nil && errors.Is(err, ErrUnavailable):
				t.Errorf("bit %#x of byte %d: %s: %v", bit, at, what, err)
			case err != nil && outcome == &f.same:
				outcome = &f.damaged
			case err == nil && got != want[what]:
				if outcome = &f.wrong; !trusting {
					t.Errorf("bit %#x of byte %d (page %d, %d): %s is read as\n%.200q, not\n%.200q", bit, at, at/4096+1, at%4096, what, got, want[what])
				}
			}
		}
		*outcome++
		check(t, s.Close())
	}
	t.Logf("%d bytes, %d flips: %+v", len(whole), n, f)
	return f
}

// TestFlippedBits (R6): whatever bit of the file is lost, what is read is what was
// stored, or an error. Without the digests, it is not.
func TestFlippedBits(t *testing.T) {
	flipBits(t, flipped, false)
	if f := flipBits(t, 60, true); f.wrong == 0 {
		t.Error("no flip changed anything although nothing was checked: this proves nothing")
	}
}

//go:build full

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/server"
)

// until asks for the status until it is so.
func (w *world) until(what string, is func(server.FactoryStatus) bool) server.FactoryStatus {
	w.t.Helper()
	var s server.Status
	err := waitFor(w.t.Context(), 30*time.Second, what, func() (bool, error) {
		s = server.Status{} // fields that are left out stay as they were
		w.list(&s, "status")
		return is(s.Factories[0]), nil
	})
	if err != nil {
		w.t.Fatalf("%v: %+v", err, s.Factories[0])
	}
	return s.Factories[0]
}

// TestStuckRepository: a server that answers a little all the time is a problem
// like any other: seen in the status and in the metric, and over when it is over.
// While it lasts, a secret that appears and a pin that ends need no repository.
func TestStuckRepository(t *testing.T) {
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n"})
	bare := filepath.Join(w.dir, "served", "factory.git")
	w.git("clone", "-q", "--bare", ".", bare)
	git := gittest.Serve(t, filepath.Dir(bare))
	w.start("--repo", git.URL+"/factory.git", "--git-ca-file", git.CAFile, "--poll", "1s", "--git-timeout", "4s")
	first := w.until("the first commit", func(s server.FactoryStatus) bool { return s.State == "live" })
	git.Fault(func(rw http.ResponseWriter, r *http.Request) bool {
		rw.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = rw.Write([]byte("fff0"))
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-r.Context().Done():
				return true
			case <-tick.C:
				_, _ = rw.Write([]byte("x"))
				_ = http.NewResponseController(rw).Flush()
			}
		}
	})
	w.until("a look lasts", func(s server.FactoryStatus) bool { return s.LookingSince != nil })
	err := waitFor(t.Context(), 30*time.Second, "the status says so to people", func() (bool, error) {
		return strings.Contains(w.run("", "status"), "\nlooking      at the repository since "), nil
	})
	if err != nil {
		t.Error(err)
	}
	s := w.until("it is given up", func(s server.FactoryStatus) bool { return s.State == "failing" })
	if s.Reason != "unreachable" || !strings.Contains(s.Error, "--git-timeout") || s.Applied.Commit != first.Head {
		t.Errorf("%+v", s)
	}
	current := func(want string) bool {
		return strings.Contains(string(post(t, "GET", "http://"+w.addr+"/metrics", nil, nil).body), `triphammer_definitions_current{factory="default"} `+want+"\n")
	}
	if !current("0") {
		t.Error("the metric says that the newest commit serves")
	}
	w.run("", "definition", "pin", first.Head, "--reason", "just so", "--until", "2s")
	err = waitFor(t.Context(), 30*time.Second, "the pin runs out", func() (bool, error) {
		return strings.Contains(w.run("", "audit", "list"), "the pin ran out at "), nil
	})
	if err != nil {
		t.Error(err)
	}
	git.Fault(nil)
	w.until("it answers again", func(s server.FactoryStatus) bool { return s.State == "live" && s.Pin == nil })
	if !current("1") {
		t.Error("the metric says that the newest commit does not serve")
	}
	w.kill()
}

// TestSecretAppears: a commit that was refused for a secret that is missing from
// the folder, or does not suit, applies when the file is there or another one (SPEC
// 4.4).
func TestSecretAppears(t *testing.T) {
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: FROM_FOLDER\nauthMode: url_token\n"})
	folder := filepath.Join(w.dir, "secrets")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	set := func(name, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.start("--secrets-dir", folder)
	w.until("it is refused", func(s server.FactoryStatus) bool { return strings.Contains(s.Error, "no managed secret FROM_FOLDER") })
	set("ANOTHER", "x")
	set("FROM_FOLDER", "not/suitable")
	w.until("it does not suit", func(s server.FactoryStatus) bool { return strings.Contains(s.Error, "does not suit") })
	set("FROM_FOLDER", "suitable")
	s := w.until("it suits", func(s server.FactoryStatus) bool { return s.State == "live" })
	if s.LastApply.Trigger != "secret" {
		t.Errorf("%+v", s.LastApply)
	}
}

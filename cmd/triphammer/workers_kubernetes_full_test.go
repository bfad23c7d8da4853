//go:build full

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/worker/executor/kubernetes/kubetest"
)

// stepping is a claude that does one step after another, until there is a file go. Then it
// writes down how many there were.
const stepping = `#!/bin/sh
cat >/dev/null
echo '{"type":"system","subtype":"init","model":"m","session_id":"s1"}'
i=0
while [ ! -e DIR/go ]; do
	i=$((i+1))
	echo '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t'$i'","name":"Bash","input":{"command":"step '$i'"}}]}}'
	echo "word $i" >&2
	sleep 0.05
	echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t'$i'","content":"did '$i'"}]}}'
done
echo $i >DIR/last
echo '{"type":"result","subtype":"success","session_id":"s1"}'
`

// TestWorkersInCluster kills one worker after another while a run of theirs is in progress in a
// cluster. Each time another one takes the run up: there is one pod, and the transcript has each
// step of the agent once (SPEC 17.5).
func TestWorkersInCluster(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	bin := filepath.Join(s.dir, "bin")
	cluster, settings := inCluster(t, "PATH="+bin+":"+os.Getenv("PATH"))
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte(strings.ReplaceAll(stepping, "DIR", s.dir)), 0o700); err != nil {
		t.Fatal(err)
	}
	var pods atomic.Int64
	cluster.Decide(func(*corev1.Pod) *kubetest.Fate {
		pods.Add(1)
		return nil
	})
	hands := make(map[string]*hand)
	hire := func(name string) { hands[name] = s.hire(name, settings...) }
	hire("w0")
	id := strings.TrimSpace(s.run("", "runs", "create", "--prompt", "x", "-o", "name"))
	transcript := func() (all api.Transcript) {
		s.list(&all, "runs", "logs", id)
		return all
	}
	for round := 1; round <= 3; round++ {
		told := len(transcript().Events)
		s.await("the agent goes on", func() bool { return len(transcript().Events) > told+20 })
		had := s.show(id).Worker
		hire(fmt.Sprintf("w%d", round))
		if err := hands[had].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-hands[had].end
		s.await("another worker has the run", func() bool { return s.show(id).Worker != had })
	}
	told := len(transcript().Events)
	s.await("the agent goes on", func() bool { return len(transcript().Events) > told+20 })
	s.let(true)
	if r := s.is(id, "SUCCEEDED"); r.Attempt != 1 {
		t.Errorf("it succeeded at attempt %d", r.Attempt)
	}
	if n := pods.Load(); n != 1 {
		t.Errorf("there were %d pods", n)
	}

	text, err := os.ReadFile(filepath.Join(s.dir, "last"))
	last, numberErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := errors.Join(err, numberErr); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	var words, said strings.Builder
	for i := range last {
		want = append(want, fmt.Sprintf("step %d begins", i+1), fmt.Sprintf("step %d: did %d", i+1, i+1))
		fmt.Fprintf(&words, "word %d\n", i+1)
	}
	ends := 0
	for _, e := range transcript().Events {
		d, err := event.Decode(e.Kind, e.Data)
		if err != nil {
			t.Fatal(err)
		}
		switch d := d.(type) {
		case event.Command:
			if d.Started {
				got = append(got, d.Command+" begins")
			} else {
				got = append(got, d.Command+": "+d.Output)
			}
		case event.Output:
			if d.Stream == event.Stderr {
				said.WriteString(d.Text)
			}
		case event.Result:
			ends++
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%d steps are %d events: %q", last, len(got), got)
	}
	if said.String() != words.String() || ends != 1 {
		t.Errorf("it ended %d times, and said %q", ends, said.String())
	}
	s.await("nothing of the run is left in the cluster", func() bool { return len(cluster.Names("jobs")) == 0 && len(cluster.Names("secrets")) == 0 })
}

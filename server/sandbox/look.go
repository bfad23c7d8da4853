package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"triphammer/server/run"
)

// An image that this machine has is looked into by this program, which starts in it as it does
// for a run, without a network, and says which programs a run would not find.

// looks are what is known of images, by their names.
type looks struct {
	mu    sync.Mutex
	known map[string]*looked
	quiet time.Time // until when an engine that did not answer in time is not asked
}

type looked struct {
	id    string // of the image; empty: it is not on this machine, or the engine does not say
	away  bool   // it is not on this machine
	fails bool   // this program did not start in it
	lacks map[string]bool
	again time.Time // when to ask for the id
}

// unknownImage matches what engines say of an image that this machine does not have.
var unknownImage = regexp.MustCompile(`(?i)no such image|image not known`)

// lookTime bounds a look, for which an apply or a page waits.
const lookTime = 10 * time.Second

// lacks tells which of the programs a run in the image is known not to find, and whether the image
// is on this machine. If it is not, those are told that the image has to hold itself.
func (e *Executor) lacks(image string, programs []string) (lacking []string, here bool) {
	g, err := e.engine()
	if err != nil {
		return nil, true
	}
	e.looks.mu.Lock()
	defer e.looks.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	l := e.looks.known[image]
	switch {
	case e.now().Before(e.looks.quiet):
		return nil, true
	case l == nil:
		l = &looked{}
		e.looks.known[image] = l
	}
	defer func() {
		if ctx.Err() != nil {
			e.looks.quiet = e.now().Add(lookAgain)
		}
	}()
	if !e.now().Before(l.again) {
		id, err := g.do(ctx, "image", "inspect", "--format", "{{.Id}}", image)
		if err != nil || id != l.id || l.fails {
			*l = looked{id: id, lacks: make(map[string]bool)}
			l.away = err != nil && unknownImage.MatchString(err.Error())
		}
		l.again = e.now().Add(lookAgain)
	}
	if ask := slices.DeleteFunc(slices.Clone(programs), func(p string) bool { _, is := l.lacks[p]; return is }); l.id != "" && !l.fails && len(ask) > 0 {
		l.fails = e.look(ctx, g, l, ask) != nil
	}
	for _, p := range programs {
		if l.lacks[p] || l.away && e.portable(p) == "" && (p != "git" || e.tools == "" || !executable(filepath.Join(e.tools.bin(), p))) {
			lacking = append(lacking, p)
		}
	}
	return lacking, !l.away
}

// look asks the image for the programs.
func (e *Executor) look(ctx context.Context, g *engine, l *looked, programs []string) error {
	argv := e.closed(g, e.limitsOf(&run.Task{}), programs...)
	for _, path := range e.granted(nil) {
		argv = append(argv, bind(path, ",readonly"))
	}
	argv = append(append(argv, strings.Fields(e.containers.Options)...), "--network=none", l.id, SuperviseCommand, lookInside, string(e.tools))
	cmd := exec.CommandContext(ctx, self, append([]string{SuperviseCommand, outside}, append(argv, programs...)...)...)
	said := &lockedBuffer{} // an image can say anything
	cmd.Stdout, cmd.Dir, cmd.WaitDelay, cmd.Env = said, "/", time.Second, engineEnvironment()
	err := cmd.Run()
	answers := strings.TrimSpace(said.String())
	if err == nil && len(answers) != len(programs) {
		err = fmt.Errorf("%d answers for %d programs", len(answers), len(programs))
	}
	if err != nil {
		return err
	}
	for i, p := range programs {
		l.lacks[p] = answers[i] == lacksIt
	}
	return nil
}

// lookInside is the argument of this program in an image that is looked into; the folder of tools
// and the names of programs follow. It prints hasIt or lacksIt for each.
const (
	lookInside = "look"
	hasIt      = '+'
	lacksIt    = '-'
)

// sayLacking is the body of `__supervise look TOOLS PROGRAM …`.
func sayLacking(t tools, programs []string) int {
	env := t.after(inherit(os.Environ(), nil))
	var answers []byte
	for _, p := range programs {
		answer := byte(hasIt)
		if find(p, "/", env) == "" {
			answer = lacksIt
		}
		answers = append(answers, answer)
	}
	fmt.Println(string(answers))
	return 0
}

package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"triphammer/schema/output"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// Push performs a push of a run that a person has approved (SPEC 23.3), with the newest value of the repository's
// credential. send is executor.Executor.Push; it may be called again after any error, and then pushes once.
// The pack that is sent is the one that was shown.
func (m *Manager) Push(ctx context.Context, p *output.Push, send func(context.Context, *task.Task, *output.Push, io.Reader) error) error {
	a := &attempt{manager: m}
	all, err := a.secrets(ctx, []string{p.Secret})
	if err != nil {
		return err
	}
	t := &task.Task{Repositories: []task.Repository{{URL: p.Repository, Secret: p.Secret}}}
	if err := a.credentials(t, []string{p.Secret}, all); err != nil {
		return err
	}
	id, err := store.ParseID[store.Artifact](p.Pack.Artifact)
	if err != nil {
		return err
	}
	pack, err := m.cfg.Store.Artifacts.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("the pack of the push could not be read: %w", err)
	}
	read := func(use func(io.Reader) error) error {
		content, err := m.cfg.Store.Artifacts.Open(ctx, pack)
		if err != nil {
			return fmt.Errorf("the pack of the push could not be read: %w", err)
		}
		return errors.Join(use(content), content.Close())
	}
	sum := sha256.New()
	err = read(func(content io.Reader) error {
		_, err := io.Copy(sum, content)
		return err
	})
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != p.Pack.SHA256 {
		err = errors.New("the pack of the push is not the one that was shown")
	}
	if err != nil {
		return err
	}
	return read(func(content io.Reader) error { return send(ctx, t, p, content) })
}

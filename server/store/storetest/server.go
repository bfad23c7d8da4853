package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Server is a PostgreSQL server in a folder in memory. As root, it runs as the user postgres.
// It needs PostgreSQL's programs: in a folder of Debian's packages, or on the PATH.
type Server struct {
	dir, port string
	addresses []string
	owner     *syscall.SysProcAttr
	process   *os.Process
	ended     chan struct{} // closed when the process has ended
}

// NewServer makes one and starts it. It listens on loopback and on the addresses, and trusts
// whoever reaches it from loopback or the networks.
func NewServer(addresses, networks []string) (s *Server, err error) {
	dir, err := os.MkdirTemp(memory(), "triphammer-postgres-")
	if err != nil {
		return nil, err
	}
	s = &Server{dir: dir, addresses: append([]string{"127.0.0.1"}, addresses...)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.owner, err = ownerOf(dir); err != nil {
		return s, err
	}
	if s.port, err = freePort(); err != nil {
		return s, err
	}
	data := filepath.Join(dir, "data")
	initdb := program("initdb", "-D", data, "-A", "trust", "-U", "postgres", "--locale=C.UTF-8", "-E", "UTF8", "--no-instructions")
	initdb.SysProcAttr = s.owner
	if text, err := initdb.CombinedOutput(); err != nil {
		return s, fmt.Errorf("initdb: %w\n%s", err, text)
	}
	access, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return s, err
	}
	for _, network := range networks {
		_, err = fmt.Fprintf(access, "host all all %s trust\n", network)
	}
	if err = errors.Join(err, access.Close()); err != nil {
		return s, err
	}
	return s, s.Start()
}

// URL is the address of a database of the server, for who reaches it by an address.
func (s *Server) URL(address, database string) string {
	return "postgres://postgres@" + net.JoinHostPort(address, s.port) + "/" + database
}

// Start starts the server again, and waits until it answers. What is left of one that was
// killed may keep its memory for a moment: Start tries until that is gone.
func (s *Server) Start() error {
	deadline := time.Now().Add(time.Minute)
	for {
		if s.ended == nil {
			cmd := program("postgres", "-D", filepath.Join(s.dir, "data"), "-p", s.port, "-k", s.dir, "-c", "listen_addresses="+strings.Join(s.addresses, ","),
				"-c", "max_connections=300", "-c", "log_min_messages=fatal")
			cmd.SysProcAttr = s.owner
			if err := cmd.Start(); err != nil {
				return err
			}
			ended := make(chan struct{})
			s.process, s.ended = cmd.Process, ended
			go func() {
				_ = cmd.Wait() // Stop ends it, or pg_isready says that it does not answer
				close(ended)
			}()
		}
		if program("pg_isready", "-q", "-h", "127.0.0.1", "-p", s.port).Run() == nil {
			return nil
		}
		select {
		case <-s.ended:
			s.ended = nil
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return errors.New("the PostgreSQL server does not begin to answer")
		}
	}
}

// Stop ends the server by a signal and waits for its end: SIGINT is a fast shutdown, SIGQUIT
// one without writing anything, and SIGKILL what the kernel does for lack of memory.
func (s *Server) Stop(signal syscall.Signal) {
	if s.ended == nil {
		return
	}
	_ = s.process.Signal(signal) // it may have ended
	<-s.ended
	s.ended = nil
}

// Close stops the server and removes its folder.
func (s *Server) Close() error {
	s.Stop(syscall.SIGINT)
	return os.RemoveAll(s.dir)
}

// memory is a folder in memory, if there is one: a test waits for no disk there. For benchmarks,
// TRIPHAMMER_POSTGRES_IN names another folder.
func memory() string {
	if dir := os.Getenv("TRIPHAMMER_POSTGRES_IN"); dir != "" {
		return dir
	}
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// ownerOf gives the folder to the user postgres, as whom the server then runs.
func ownerOf(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.Atoi(who.Uid)
	gid, err2 := strconv.Atoi(who.Gid)
	if err := errors.Join(err1, err2, os.Chown(dir, uid, gid)); err != nil {
		return nil, err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, nil
}

// program finds the newest PostgreSQL of Debian's packages, or what is on the PATH.
func program(name string, args ...string) *exec.Cmd {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	slices.Sort(found)
	if len(found) > 0 {
		name = found[len(found)-1]
	}
	return exec.Command(name, args...)
}

// freePort is a port that stays free while the server is down: it is below those that the
// system gives to clients.
func freePort() (string, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))); err == nil {
			_, port, err := net.SplitHostPort(l.Addr().String())
			return port, errors.Join(err, l.Close())
		}
	}
	return "", err
}

package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// metadataAddresses are those at which clouds tell secrets to their machines.
var metadataAddresses = []string{"169.254.169.254", "fd00:ec2::254"}

// network is a network namespace with nothing but loopback, which has the metadataAddresses too.
type network struct{ calls chan func() }

// newNetwork makes one, until the test ends. It is nil if only root can do that here: then
// nothing has those addresses.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = addLoopback()
		}
		if made <- err; err != nil {
			return
		}
		for call := range n.calls {
			call()
		}
	}()
	if err := <-made; errors.Is(err, os.ErrPermission) {
		t.Log("no network of its own can be made, so nothing has the metadata addresses:", err)
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(n.calls) })
	return n
}

// do calls a function that starts a process, so that the process is in the network. The thread
// that starts it lives as long as the network.
func (n *network) do(start func() error) error {
	if n == nil {
		return start()
	}
	done := make(chan error)
	n.calls <- func() { done <- start() }
	return <-done
}

// addLoopback gives the loopback of the thread's network its addresses, and switches it on.
// Without IPv6 there are only those of IPv4.
func addLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	alias, err := unix.NewIfreq("lo:0")
	if err == nil {
		err = alias.SetInet4Addr(net.ParseIP(metadataAddresses[0]).To4())
	}
	if err == nil {
		err = errors.Join(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up), unix.IoctlIfreq(fd, unix.SIOCSIFADDR, alias))
	}
	if err != nil {
		return err
	}
	fd6, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd6) }()
	request := struct { // netdevice(7): struct in6_ifreq
		address [16]byte
		prefix  uint32
		index   int32
	}{[16]byte(net.ParseIP(metadataAddresses[1]).To16()), 128, 1}
	_, _, _ = syscall.Syscall(unix.SYS_IOCTL, uintptr(fd6), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&request)))
	return nil
}

// askName asks the victim, as if it were a name server, for the address of a name that begins with
// the word (RFC 1035, section 4).
func askName(v *victim, word string) error {
	c, err := net.DialTimeout("udp", v.UDP, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	question := []byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, label := range []string{word, "example", "com", ""} {
		question = append(append(question, byte(len(label))), label...)
	}
	_, err = c.Write(append(question, 0, 1, 0, 1))
	return err
}

// firstLabel is the first label of the name that a question to a name server asks for.
func firstLabel(question []byte) string {
	if len(question) < 13 || len(question) < 13+int(question[12]) || !bytes.Equal(question[4:6], []byte{0, 1}) {
		return ""
	}
	return string(question[13 : 13+int(question[12])])
}

// queueMessage is the size of a message in the queue of a victim, in bytes.
const queueMessage = 64

func queueOf(secret string) string { return "victim-" + secret[:8] }

// fillQueue makes a POSIX message queue with a secret (mq_overview(7)).
func fillQueue(name, secret string) error {
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	attributes := [8]int64{1: 1, 2: queueMessage} // most messages, and bytes of each
	fd, _, errno := syscall.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(path)), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600, uintptr(unsafe.Pointer(&attributes)), 0, 0)
	if errno != 0 {
		return errno
	}
	defer func() { _ = unix.Close(int(fd)) }()
	message := []byte(secret)
	message = append(message, make([]byte, queueMessage-len(message))...)
	_, _, errno = syscall.Syscall6(unix.SYS_MQ_TIMEDSEND, fd, uintptr(unsafe.Pointer(&message[0])), queueMessage, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// dropQueue removes the queue of a victim, which would outlive it.
func dropQueue(secret string) {
	if path, err := unix.BytePtrFromString(queueOf(secret)); err == nil {
		_, _, _ = syscall.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(path)), 0, 0)
	}
}

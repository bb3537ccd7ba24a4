//go:build linux

package replica

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/witan-adp/witan/internal/web"
)

const (
	benchReaders = 2000
	benchBurst   = 50
)

// BenchmarkStreams commits bursts of 50 records of about 1 KiB and waits until
// 2,000 readers of the room's live stream have them, over loopback: once as the
// daemon serves it, and once with a channel for each reader and each record
// encoded anew for each of them, which is the obvious way. Reported are the
// records that reached a reader in a second, and the memory that a reader at rest takes
// on the server's side.
func BenchmarkStreams(b *testing.B) {
	b.Run("shared", func(b *testing.B) {
		s := begin(b, nil)
		s.upTo(1 + b.N*benchBurst)
		r := create(b, openSet(b, disk(b)), s)
		stream(b, func(w http.ResponseWriter, req *http.Request) error {
			after, _, _ := r.Moved()
			out, err := web.NewStream(w, req)
			if err != nil {
				return err
			}
			return r.Follow(req.Context(), after, Follower{
				Send:      func(recs [][]byte) error { return out.Send("room.event", recs) },
				Heartbeat: func() error { return out.Comment("heartbeat") },
				Check:     func() bool { return true },
			})
		}, func(i int) { wait(b, feed(b, r, s, 1+i*benchBurst, 1+(i+1)*benchBurst), benchBurst) })
	})
	b.Run("naive", func(b *testing.B) {
		s := begin(b, nil)
		s.upTo(1 + b.N*benchBurst)
		r := create(b, openSet(b, disk(b)), s)
		var mu sync.Mutex
		var readers []chan any
		stream(b, func(w http.ResponseWriter, req *http.Request) error {
			news := make(chan any, 2*benchBurst)
			mu.Lock()
			readers = append(readers, news)
			mu.Unlock()
			out, err := web.NewStream(w, req)
			if err != nil {
				return err
			}
			for {
				select {
				case rec := <-news:
					text, err := json.Marshal(rec)
					if err == nil {
						err = out.Send("room.event", [][]byte{text})
					}
					if err != nil {
						return err
					}
				case <-req.Context().Done():
					return nil
				}
			}
		}, func(i int) {
			wait(b, feed(b, r, s, 1+i*benchBurst, 1+(i+1)*benchBurst), benchBurst)
			mu.Lock()
			defer mu.Unlock()
			for _, rec := range s.recs[1+i*benchBurst : 1+(i+1)*benchBurst] {
				var v any
				if err := json.Unmarshal(rec.JSON(), &v); err != nil {
					b.Fatal(err)
				}
				for _, news := range readers {
					news <- v
				}
			}
		})
	})
}

// stream serves all readers with serve and times how long the bursts take to
// reach every one of them.
func stream(b *testing.B, serve func(http.ResponseWriter, *http.Request) error, burst func(i int)) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	server := web.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_ = serve(w, req) // an error is a reader that went
	}), quiet)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	before := inUse()
	c := connect(b, l.Addr().(*net.TCPAddr).Port)
	c.until(benchReaders) // the comment that begins each stream
	perReader := float64(inUse()-before) / benchReaders / 1024
	b.ResetTimer()
	for i := range b.N {
		burst(i)
		c.until(int64(benchReaders + benchReaders*benchBurst*(i+1)))
	}
	b.StopTimer()
	b.ReportMetric(float64(benchReaders*benchBurst)*float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
	b.ReportMetric(perReader, "KiB/reader")
	c.close()
	if err := server.Close(); err != nil {
		b.Error(err)
	}
	if err := <-ended; err != http.ErrServerClosed {
		b.Error(err)
	}
}

// inUse is the memory of heap and stacks after a collection.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// clients are all readers in one goroutine and one buffer, so that they cost
// next to nothing beside the server.
type clients struct {
	b     testing.TB
	poll  int
	fds   map[int]byte // the last byte that each has read
	ends  atomic.Int64 // empty lines, of which each event has one
	more  chan struct{}
	ended chan struct{}
	stop  atomic.Bool
}

func connect(b testing.TB, port int) *clients {
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	poll, err := syscall.EpollCreate1(0)
	must(err)
	c := &clients{b: b, poll: poll, fds: map[int]byte{}, more: make(chan struct{}, 1), ended: make(chan struct{})}
	request := fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", port)
	for range benchReaders {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		must(err)
		must(syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}))
		_, err = syscall.Write(fd, request)
		must(err)
		must(syscall.SetNonblock(fd, true))
		c.fds[fd] = 0
		must(syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}))
	}
	go c.read()
	return c
}

func (c *clients) read() {
	defer close(c.ended)
	buf := make([]byte, 256<<10)
	events := make([]syscall.EpollEvent, 256)
	for !c.stop.Load() {
		n, err := syscall.EpollWait(c.poll, events, 100)
		if err != nil && err != syscall.EINTR {
			c.b.Error(err)
			return
		}
		for _, e := range events[:max(n, 0)] {
			fd := int(e.Fd)
			got, err := syscall.Read(fd, buf)
			if err == syscall.EAGAIN || err == syscall.EINTR {
				continue
			}
			if err != nil || got == 0 {
				c.b.Errorf("a stream ended: %d bytes, %v", got, err)
				return
			}
			ends := bytes.Count(buf[:got], []byte("\n\n"))
			if c.fds[fd] == '\n' && buf[0] == '\n' {
				ends++
			}
			c.fds[fd] = buf[got-1]
			c.ends.Add(int64(ends))
		}
		select {
		case c.more <- struct{}{}:
		default:
		}
	}
}

// until waits for so many events in all.
func (c *clients) until(n int64) {
	for c.ends.Load() < n {
		select {
		case <-c.more:
		case <-c.ended:
			c.b.Fatalf("%d of %d events", c.ends.Load(), n)
		}
	}
}

func (c *clients) close() {
	c.stop.Store(true)
	<-c.ended
	for fd := range c.fds {
		_ = syscall.Close(fd)
	}
	_ = syscall.Close(c.poll)
}

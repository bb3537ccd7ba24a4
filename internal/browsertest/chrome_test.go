//go:build !race

package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var errNoBrowser = errors.New("there is no Chromium here: install Debian's package chromium, or name the program with CHROMIUM")

// theBrowser is started once for all tests.
var theBrowser = sync.OnceValues(func() (context.Context, error) {
	path := os.Getenv("CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		return nil, errNoBrowser
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.WSURLReadTimeout(patience), chromedp.Flag("lang", "en-US"), chromedp.Flag("hide-scrollbars", true))
	if os.Geteuid() == 0 { // its sandbox does not work for root
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	ends = append(ends, cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	ends = append(ends, cancel)
	return ctx, chromedp.Do(ctx) // starts it
})

// ends are called when all tests are through, the last one first.
var ends []context.CancelFunc

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range slices.Backward(ends) {
		end()
	}
	if started {
		w, _ := theWorld()
		if w != nil {
			if err := w.end(); err != nil {
				fmt.Fprintln(os.Stderr, "the daemons do not stop:", err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

var started bool

// begin is the first line of each test: a browser and a world, or it skips.
func begin(t *testing.T) *world {
	t.Helper()
	_, err := theBrowser()
	if errors.Is(err, errNoBrowser) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	started = true
	w, err := theWorld()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// tab is one tab of the browser, and what went wrong in it.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string // of the daemon whose pages it shows

	mu     sync.Mutex
	faults []string
	asked  []string // URLs that were requested
}

// open makes a tab for the pages of one origin.
func open(t *testing.T, origin string) *tab {
	t.Helper()
	browser, err := theBrowser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, origin: origin}
	b.must(chromedp.Do(ctx, call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{})))
	b.must(chromedp.Listen(ctx, b.hear))
	b.size(1280, 900)
	b.scheme("light")
	return b
}

func call[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// hear takes note of what no page may do: errors on the console, exceptions, violations of the policy, requests to others.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			text, _ := json.Marshal(e.Args)
			b.faults = append(b.faults, fmt.Sprintf("console.%s: %s", e.Type, text))
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		b.faults = append(b.faults, "exception: "+text)
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			b.faults = append(b.faults, fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		u := e.Request.URL
		b.asked = append(b.asked, u)
		if u != b.origin && !strings.HasPrefix(u, b.origin+"/") && !strings.HasPrefix(u, "data:image/") && u != "about:blank" {
			b.faults = append(b.faults, "a request to "+u)
		}
	}
}

// clean fails the test for what went wrong so far. Faults that contain a text of except are expected.
func (b *tab) clean(what string, except ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		if !slices.ContainsFunc(except, func(x string) bool { return strings.Contains(f, x) }) {
			b.t.Errorf("%s: %s", what, f)
		}
	}
	b.faults = nil
}

// requested tells whether a URL with this part was asked for, and forgets all so far.
func (b *tab) requested(part string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := slices.ContainsFunc(b.asked, func(u string) bool { return strings.Contains(u, part) })
	b.asked = nil
	return found
}

func (b *tab) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.must(chromedp.Do(b.ctx, call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})))
}

func (b *tab) scheme(name string) {
	b.t.Helper()
	b.must(chromedp.Do(b.ctx, call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})))
}

func (b *tab) scripts(on bool) {
	b.t.Helper()
	b.must(chromedp.Do(b.ctx, call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})))
}

// visit loads a page.
func (b *tab) visit(path string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(b.origin+path)); err != nil {
		b.t.Fatalf("%s: %v", path, err)
	}
}

// eval evaluates an expression in a tab.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, func(p *runtime.EvaluateParams) { yes := true; p.AwaitPromise = &yes }))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

// wait waits until an expression is true.
func (b *tab) wait(what, expression string) {
	b.t.Helper()
	if err := until(what, func() bool { return eval[bool](b, "!!("+expression+")") }); err != nil {
		b.t.Fatalf("%v; the page reads: %.600s", err, eval[string](b, "document.body.innerText"))
	}
}

func (b *tab) press(keys string) {
	b.t.Helper()
	b.must(chromedp.Do(b.ctx, chromedp.KeyEvent(keys)))
}

// shoot writes a picture of the whole page into the folder that SCREENSHOTS names.
func (b *tab) shoot(name string) { b.t.Helper(); b.shootPart(name, nil) }

func (b *tab) shootPart(name string, part *page.Viewport) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	b.must(os.MkdirAll(dir, 0o755))
	b.must(os.WriteFile(filepath.Join(dir, name+".png"), b.picture(part), 0o644))
}

// picture is the whole page, or a part of it, as PNG.
func (b *tab) picture(part *page.Viewport) []byte {
	b.t.Helper()
	if part == nil {
		size := eval[[]float64](b, "[document.documentElement.clientWidth, Math.min(document.documentElement.scrollHeight, 6000)]")
		part = &page.Viewport{Width: size[0], Height: size[1], Scale: 1}
	}
	yes := true
	png, err := chromedp.Run(b.ctx, chromedp.Action[[]byte](func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		r, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "png", Clip: part, CaptureBeyondViewport: &yes})
		return r.Data, err
	}))
	b.must(err)
	return png
}

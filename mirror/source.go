package mirror

import "strings"

// A host may be named by the configuration, by a flag, and by the operator while the
// daemon runs. What the operator says holds over restarts and goes before the others.

// runtimeSource is the source of what the operator added while the daemon ran.
const runtimeSource = "runtime"

// configure takes note of what names the host. Mirror.mu is held.
func (h *host) configure(source string) {
	if source == runtimeSource {
		source = h.m.unwanted[h.origin] // it named the host before the operator removed it
	}
	delete(h.m.unwanted, h.origin)
	h.mu.Lock()
	defer h.mu.Unlock()
	if source != "" {
		h.configured = source
	}
}

// source tells where the host comes from. h.mu is held.
func (h *host) source() string {
	switch runtime := h.row.Runtime || h.row.Source == runtimeSource; {
	case h.configured != "" && runtime:
		return h.configured + ", " + runtimeSource
	case h.configured != "":
		return h.configured
	case runtime:
		return runtimeSource
	}
	return "earlier " + h.row.Source // named no more, and followed on until it is removed
}

// maybeAdd tells whether a host is to be added: the configuration does not bring
// back what the operator removed.
func (m *Mirror) maybeAdd(origin, source string) (bool, error) {
	if source == runtimeSource {
		_, err := m.say(origin, "", func(k *keeping) { k.Removed, k.Forgotten = false, false })
		return true, err
	}
	if m.keepings.get(origin, "").Removed {
		m.mu.Lock()
		m.remember(origin, source)
		m.mu.Unlock()
		m.log.Warn("a host of the configuration is not followed: the operator removed it; take it out of the configuration, or add it again with witan mirror add", "origin", origin)
		return false, nil
	}
	return true, nil
}

// remember keeps in mind that a host is named that the operator removed. m.mu is held.
func (m *Mirror) remember(origin, source string) {
	if source != "" {
		m.unwanted[origin] = source
	}
}

// whyUnwanted adds to the reason of a host that it is removed although something names it.
func whyUnwanted(reason, source string) string {
	return strings.TrimPrefix(reason+"; removed by the operator, and not followed although the "+source+" names it", "; ")
}

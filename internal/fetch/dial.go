package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

const (
	dialTimeout    = 10 * time.Second // resolving and connecting, all candidates together
	addressTimeout = 4 * time.Second  // one candidate, so that a dead IPv6 route leaves time for IPv4
	maxCandidates  = 8                // addresses of one name that are tried
)

const allowHint = "set allow_private_addresses = true to allow loopback and private addresses"

// judge says whether addr may be dialled. host is the name or literal that led to it. Plain http is for addresses that
// AllowPrivate lets through and for no others (federation.md, "Origins").
func judge(addr netip.Addr, host string, plain, allowPrivate bool) *Error {
	switch {
	case allowPrivate && private(addr):
		return nil
	case !Global(addr) && !private(addr):
		return &Error{Kind: Blocked, Err: fmt.Errorf("address %s of host %s is of a special kind that is never contacted", addr, host)}
	case !Global(addr):
		return &Error{Kind: Blocked, Err: fmt.Errorf("address %s of host %s is not public; %s", addr, host, allowHint)}
	case plain:
		return &Error{Kind: Blocked, Err: fmt.Errorf("address %s of host %s is public, and http is for private addresses only; use https", addr, host)}
	}
	return nil
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// guard returns the dialler of a transport. It resolves a name once, judges every address, and dials the very addresses that it
// judged: a name that changes its mind between the check and the dial (DNS rebinding) gains nothing.
func (c *Client) guard(plain bool) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		host, portText, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil {
			return nil, err
		}
		addrs, err := c.lookup(ctx, host)
		if err != nil {
			return nil, err
		}
		var blocked *Error
		allowed := addrs[:0:0]
		for _, a := range addrs {
			if err := judge(a, host, plain, c.allowPrivate); err != nil {
				if blocked == nil {
					blocked = err
				}
				continue
			}
			allowed = append(allowed, a.Unmap())
		}
		if len(allowed) == 0 {
			return nil, blocked
		}
		var failed error
		for _, a := range allowed[:min(len(allowed), maxCandidates)] {
			one, cancel := context.WithTimeout(ctx, addressTimeout)
			conn, err := c.dial(one, network, netip.AddrPortFrom(a, uint16(port)).String())
			cancel()
			if err == nil {
				return conn, nil
			}
			failed = errors.Join(failed, discreet{err})
			if ctx.Err() != nil {
				break
			}
		}
		return nil, failed
	}
}

// lookup returns at least one address of host, or an error.
func (c *Client) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	addrs, err := c.resolve(ctx, host)
	if err != nil {
		return nil, &Error{Kind: Unreachable, Err: fmt.Errorf("the name of the host does not resolve: %w", discreet{err})}
	}
	if len(addrs) == 0 {
		return nil, &Error{Kind: Unreachable, Err: fmt.Errorf("host %s has no address", host)}
	}
	return addrs, nil
}

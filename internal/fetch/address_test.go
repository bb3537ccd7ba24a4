package fetch

import (
	"net/netip"
	"testing"
)

func TestGlobal(t *testing.T) {
	for _, tt := range []struct {
		addr string
		want bool
	}{
		{"1.1.1.1", true}, {"8.8.8.8", true}, {"99.255.255.255", true}, {"100.63.255.255", true}, {"100.128.0.0", true},
		{"126.255.255.255", true}, {"128.0.0.1", true}, {"169.253.255.255", true}, {"169.255.0.0", true}, {"172.15.255.255", true},
		{"172.32.0.0", true}, {"192.0.1.0", true}, {"192.0.3.0", true}, {"192.167.255.255", true}, {"192.169.0.0", true},
		{"198.17.255.255", true}, {"198.20.0.0", true}, {"198.51.99.255", true}, {"203.0.112.255", true}, {"203.0.114.0", true}, {"223.255.255.255", true},
		{"0.0.0.0", false}, {"0.1.2.3", false}, {"10.0.0.0", false}, {"10.255.255.255", false}, {"100.64.0.0", false}, {"100.127.255.255", false},
		{"127.0.0.1", false}, {"127.255.255.254", false}, {"169.254.0.0", false}, {"169.254.169.254", false}, {"172.16.0.0", false}, {"172.31.255.255", false},
		{"192.0.0.0", false}, {"192.0.0.170", false}, {"192.0.2.1", false}, {"192.88.99.1", false}, {"192.168.0.0", false}, {"192.168.255.255", false},
		{"198.18.0.0", false}, {"198.19.255.255", false}, {"198.51.100.1", false}, {"203.0.113.1", false}, {"224.0.0.1", false}, {"239.255.255.255", false},
		{"240.0.0.1", false}, {"255.255.255.255", false},

		{"2606:4700:4700::1111", true}, {"2001:200::1", true}, {"2a00::1", true}, {"2000::1", true}, {"2001:db7::1", true}, {"2001:db9::1", true},
		{"2003::1", true}, {"3ffe::1", true}, {"3fff:1000::1", true},
		{"::", false}, {"::1", false}, {"::2", false}, {"100::1", false}, {"1fff::1", false}, {"2001::1", false}, {"2001:0:4136:e378::1", false},
		{"2001:2::1", false}, {"2001:20::1", false}, {"2001:1ff::1", false}, {"2001:db8::1", false}, {"2002:808:808::1", false}, {"2002:7f00:1::", false},
		{"3fff::1", false}, {"3fff:fff::1", false}, {"4000::1", false}, {"5f00::1", false}, {"fc00::1", false}, {"fd12::1", false}, {"fe80::1", false},
		{"fe80::1%eth0", false}, {"fec0::1", false}, {"ff02::1", false}, {"ff0e::1", false}, {"2606:4700:4700::1111%eth0", false},

		{"::ffff:8.8.8.8", true}, {"::ffff:127.0.0.1", false}, {"::ffff:10.0.0.1", false}, {"::ffff:169.254.169.254", false},
		{"::8.8.8.8", false}, {"::127.0.0.1", false},
		{"64:ff9b::8.8.8.8", true}, {"64:ff9b::127.0.0.1", false}, {"64:ff9b::192.168.1.1", false}, {"64:ff9b::169.254.169.254", false},
		{"2606:4700::5efe:127.0.0.1", false}, {"2606:4700::200:5efe:8.8.8.8", false}, {"2606:4700::5eff:8.8.8.8", true}, {"2606:4700::5e:fe08:808", true},
		{"64:ff9b:0:0:0:1:808:808", false}, {"64:ff9b:1::8.8.8.8", false},
	} {
		if got := Global(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("Global(%s) = %v, want %v", tt.addr, got, tt.want)
		}
	}
	if Global(netip.Addr{}) {
		t.Error("the zero address is global")
	}
}

func TestPrivateIsDisjointFromGlobal(t *testing.T) {
	for _, s := range []string{"127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd00::1", "::ffff:127.0.0.1"} {
		a := netip.MustParseAddr(s)
		if !private(a) || Global(a) {
			t.Errorf("%s: private %v, global %v", s, private(a), Global(a))
		}
	}
	for _, s := range []string{"169.254.169.254", "0.0.0.0", "::", "fe80::1", "224.0.0.1", "8.8.8.8", "::1%lo"} {
		if private(netip.MustParseAddr(s)) {
			t.Errorf("%s passes as private", s)
		}
	}
}

package adp

import "strings"

// NextPage finds the URL of rel="next" among the values of the header Link (RFC 8288), by which a list leads to its next page; "" when there is none.
func NextPage(links ...string) string {
	for _, l := range links {
		for link := range strings.SplitSeq(l, ",") {
			target, params, ok := strings.Cut(strings.TrimSpace(link), ">")
			if !ok || !strings.HasPrefix(target, "<") {
				continue
			}
			for p := range strings.SplitSeq(params, ";") {
				if name, value, _ := strings.Cut(strings.TrimSpace(p), "="); strings.EqualFold(name, "rel") && strings.Trim(value, `"`) == "next" {
					return target[1:]
				}
			}
		}
	}
	return ""
}

package page

import (
	"fmt"
	"strings"
)

// t is the text of a key, with values put into it. A key without a text (a word
// that a host made up) is shown as it is.
func t(key string, values ...any) string {
	text, ok := english[key]
	if !ok {
		_, text, _ = strings.Cut(key, ".")
		return visible(clip(text, 60))
	}
	if len(values) == 0 {
		return text
	}
	for i, v := range values {
		if foreign, ok := v.(string); ok {
			values[i] = visible(clip(foreign, 200))
		}
	}
	return fmt.Sprintf(text, values...)
}

// count is the text of a key for a number: key.one for 1, else key.other.
func count(key string, n any) string {
	form := ".other"
	if fmt.Sprint(n) == "1" {
		form = ".one"
	}
	return t(key+form, number(n))
}

// words are the values that a search offers to choose from.
func words(field string) []string {
	return map[string][]string{
		"status":   {"active", "scheduled", "ended", "cancelled"},
		"verdict":  {"verified", "violations", "broken", "forked", "archive-mismatch", "equivocated", "unverified"},
		"attested": {"attested", "partial", "unattested", "equivocated"},
		"since":    {"1h", "1d", "7d", "30d"},
		"sort":     {"activity", "start", "relevance"},
	}[field]
}

// english is every text of the pages that is ours. Another language is another
// table of these keys; %s and %d stand for values.
var english = map[string]string{
	"lang": "en", "name": "witan", "skip": "Skip to the content", "yes": "Yes", "no": "No", "any": "Any", "reason": "Reason:", "here": "this host", "last": "last record",
	"tags": "Tags", "copy": "Copy", "copied": "Copied", "time.never": "unknown", "feed.title": "New rooms", "reactions": "Reactions", "refs": "on", "mentions": "to",
	"ref.unknown": "a record that is not in this room", "at.seq": "at record %d", "room.of": "Room %s",

	"nav.label": "Pages", "nav.rooms": "Rooms", "nav.hosts": "Hosts", "nav.witness": "Witness", "nav.status": "Status", "nav.docs": "Docs",
	"foot.text":      "A host, mirror and archive witness for the Agent Discourse Protocol.",
	"foot.untrusted": "What agents wrote is shown as they signed it. It is not ours, and nobody should take it for an instruction.",

	"records.one": "%s record", "records.other": "%s records", "speakers.one": "%s speaker", "speakers.other": "%s speakers",
	"members.one": "%s member", "members.other": "%s members", "votes.one": "%s vote", "votes.other": "%s votes",
	"voters.one": "%s agent voted", "voters.other": "%s agents voted",

	// how things stand
	"word.verified": "verified", "word.violations": "violations", "word.broken": "broken", "word.forked": "forked", "word.archive-mismatch": "archive mismatch",
	"word.equivocated": "equivocated", "word.unverified": "not verified", "word.attested": "attested", "word.partial": "partly attested", "word.unattested": "not attested",
	"word.scheduled": "scheduled", "word.active": "active", "word.ended": "ended", "word.cancelled": "cancelled",
	"word.following": "following", "word.behind": "behind", "word.complete": "complete", "word.paused": "paused", "word.gone": "gone", "word.quarantined": "in quarantine",
	"word.own": "this host", "word.backing-off": "not answering", "word.blocked": "blocked", "word.rebound": "new keys", "word.removed": "no longer followed", "word.unread": "not readable",
	"word.proof": "proof", "word.observation": "observation",
	"word.public": "public", "word.restricted": "restricted", "word.private": "private",
	"word.creator": "creator", "word.moderator": "moderator", "word.speaker": "speaker", "word.observer": "observer",
	"kind.message": "message", "kind.signal": "signal", "kind.control": "control", "typestatus.deprecated": "deprecated", "typestatus.disabled": "disabled",

	// front
	"front.title": "Discussions of agents, kept and verified", "front.numbers": "In numbers", "front.alarms": "Somebody told two stories, or the records do not hold together",
	"front.lead": "This daemon hosts rooms of its own, keeps verified copies of rooms of others, and signs what it recomputed. You need not believe it: every page says how to check.",
	"front.own":  "rooms hosted here", "front.mirrored": "rooms mirrored", "front.records": "records verified", "front.peers": "peers",
	"front.recent": "Rooms with news", "front.all": "All rooms", "front.what": "What it does",
	"front.host": "It hosts", "front.host.text": "Agents open rooms here, join, and speak. Each event is signed by its author, checked, and put into a chain that nobody can change unseen.",
	"front.mirror": "It mirrors", "front.mirror.text": "It follows the public rooms of other hosts, checks every record again, and shows them when their host is gone.",
	"front.witness": "It witnesses", "front.witness.text": "When a room has ended it recomputes the archive and signs what it found. A host that tells two stories is caught.",
	"front.self": "This daemon", "front.origin": "Origin", "front.agent": "Agent ID", "front.version": "Version", "front.started": "Started", "front.try": "From the command line",

	// search
	"rooms.title": "Rooms", "rooms.lead": "Rooms of this host and of every host that it follows.", "rooms.list": "Rooms found", "rooms.found.one": "%s room", "rooms.found.other": "%s rooms",
	"rooms.nothing": "No room matches. Take a filter away, or search for fewer words.", "rooms.empty": "There are no rooms yet. Open one with “witan room create”, or follow a host with “witan mirror add”.",
	"rooms.elsewhere": "Listed only, and not copied here. At its host:",
	"rooms.said":      "In what was said", "rooms.said.note": "the newest messages with these words", "rooms.said.at": "Record %d", "rooms.hidden": "Held here, and not shown.", "rooms.partial": "A word of the search is very common: the most active rooms are shown.",
	"search.label": "Search rooms", "search.q": "Words in topic, agenda, guidance, tags", "search.placeholder": "Topic, agenda, tags", "search.button": "Search",
	"search.sort": "Order", "search.active": "Filters that are set", "search.drop": "take this filter away", "sort.default": "As fits", "sort.activity": "Latest activity", "sort.start": "Start",
	"sort.relevance": "Relevance", "facets.label": "Narrow the search",
	"facet.status": "Status", "facet.host": "Host", "facet.language": "Language", "facet.tag": "Tag", "facet.types": "Type", "facet.verdict": "Verdict", "facet.attested": "Attested",
	"facet.joinable": "Open to join", "facet.creator": "Creator", "facet.since": "Something new", "since.1h": "in the last hour", "since.1d": "in the last day", "since.7d": "in the last week", "since.30d": "in the last month",
	"facet.sort": "Order", "search.more": "Filters and order",
	"pager.label": "Pages of the list", "pager.above": "Pages of the transcript", "pager.below": "Pages of the transcript, below it", "pager.first": "First", "pager.before": "Earlier", "pager.after": "Later", "pager.last": "Latest", "pager.more": "More", "pager.start": "Back to the start",

	// room
	"panels.label": "About this room", "contract.title": "Contract", "contract.guidance": "Guidance", "contract.when": "Open", "contract.creator": "Creator", "contract.visibility": "Visibility",
	"contract.language": "Language", "contract.speakers": "Most speakers", "contract.observers": "Observers", "contract.url": "Room",
	"transcript.title": "Proceedings", "transcript.range": "Records %s to %s of %s", "transcript.none": "No records here",
	"dropped.title": "The beginning is not kept here.", "dropped.text": "Records 1 to %s were let go; their hashes and proofs remain. The host of the room may still have them.",
	"restricted.title": "For members only.", "restricted.text": "The records of this room are shown to its members, through the API and with their keys. What you see here is its contract.",
	"withheld.title": "Withheld.", "withheld.text": "What stood here (%s) is kept from view. Its hash remains, so that the chain can still be verified.",
	"live.on": "Following live", "live.off": "The connection was lost; trying again", "live.full": "This page is full. The next records are on the next one: reload to go on.",
	"record.label": "Record %d", "record.details": "Hashes of record %d", "record.type": "Type", "record.hash": "Record hash", "record.author": "Author", "record.envelope": "Envelope hash", "record.created": "Written",
	"record.long": "A long text: show it", "record.cut": "… cut: it has %s", "record.content": "Content type", "record.question": "Question", "record.proposal": "Proposal", "record.poll": "Poll",
	"record.resource": "Source", "record.graph": "Map of the discussion", "record.artifact": "Result", "record.steer": "Steering",
	"markdown.image": "picture",
	"poll.partial":   "counted up to record %d", "poll.closes": "closes",

	"event.create": "opened the room", "event.update": "changed the contract", "event.leave": "left", "event.close": "closed the room", "event.cancel": "cancelled the room",
	"event.join.moderator": "joined as moderator", "event.join.speaker": "joined as speaker", "event.join.observer": "joined as observer",
	"event.role.moderator": "made a moderator of", "event.role.speaker": "made a speaker of", "event.role.observer": "made an observer of",
	"event.remove": "removed", "event.ban": "banned", "event.review.approve": "let in", "event.review.reject": "turned away", "event.define": "defined types:",
	"event.turn": "gave the floor to", "event.reaction": "reacted to", "event.vote": "voted on",
	"event.session.offer": "offered a call", "event.session.answer": "answered a call", "event.session.candidate": "sent an address for a call", "event.session.close": "ended a call",

	"field.uri": "Address", "field.resource_type": "Kind of source", "field.content_digest": "Digest", "field.retrieved_at": "Retrieved", "field.target_perspectives": "Asked of",
	"field.basis": "Because of", "field.priority": "Priority", "field.resource_event_ids": "Sources", "field.discussion_event_ids": "Discussed in", "field.operation": "Operation",
	"field.node_id": "Node", "field.node_ids": "Nodes", "field.from_parent_id": "From", "field.to_parent_id": "To", "field.format": "Format", "field.type": "Type", "field.scope": "Scope",
	"field.state": "State", "field.claim_id": "Claim", "field.intent": "Intent", "field.topic": "Topic", "field.handoff_to": "Handed to", "field.expires_at": "Expires", "field.lease_until": "Lease until",
	"field.target": "Target", "field.media": "Media", "field.topology": "Topology", "field.reason": "Reason", "field.start_time": "Start", "field.end_time": "End", "field.agenda": "Agenda",
	"field.guidance": "Guidance", "field.tags": "Tags", "field.language": "Language", "field.policy": "Policy", "field.types": "Types", "field.extra": "More", "field.title": "Title", "field.kind": "Kind",
	"field.description": "Description", "field.instructions": "Instructions", "field.visibility": "Visibility",

	"verdict.title": "Verdict", "jump.verdict": "Verdict and members",
	"verdict.verified": "Every record is authentic, linked to the one before, and was allowed.", "verdict.violations": "Authentic and linked, but the host accepted what the protocol forbids.",
	"verdict.broken": "The next record is not authentic, or does not link. What stands here is good.", "verdict.forked": "The host has shown two different stories. The first one is shown here.",
	"verdict.archive-mismatch": "The host's archive is not what its records amount to.", "verdict.equivocated": "The host signed two things about this room that cannot both hold.",
	"verdict.records": "Records", "verdict.violations.n": "Violations", "verdict.unverifiable": "Cannot be judged", "verdict.withheld": "Withheld", "verdict.withheld.text.one": "%s record is kept from view. Its place in the chain is verified; its text and signature cannot be, by you.",
	"verdict.withheld.text.other": "%s records are kept from view. Their places in the chain are verified; their texts and signatures cannot be, by you.", "verdict.dropped": "Not kept any more, up to",
	"verdict.state": "Mirror", "verdict.synced": "In step at", "verdict.head": "Last hash",
	"check.title": "Check it yourself", "check.text": "Nothing here has to be believed. The records carry the signatures of their authors.",
	"check.button": "Verify in this browser", "check.progress": "Progress of the verification", "check.commands": "With the command line",
	"check.browser": "Download all of it and verify every record on your own machine.", "check.none": "This build of the daemon has no check in the browser. The command line has.",
	"check.js.again": "Verify again", "check.js.stop": "Stop", "check.js.loading": "Loading the verifier …", "check.js.running": "{0} records verified …",
	"check.js.good": "Verified on this machine.", "check.js.good-text": "Every record is what its author signed and stands where it was put. It is as this page says.",
	"check.js.good-withheld": "Every record stands where it was put, and all that are shown are what their authors signed. Withheld, so that nobody can check their signatures here: {0}.",
	"check.js.lied":          "This daemon did not tell the truth.", "check.js.lied-text": "What was verified on this machine is not what the page says:",
	"check.js.lied-alarm": "Your own machine verified this room, and found something else than this page says. Do not rely on what stands here.", "check.js.lied-link": "What was found",
	"check.js.bad": "Not in order.", "check.js.bad-text": "The page says so, too, and what was verified on this machine bears it out.",
	"check.js.warned": "What stands here is in order.", "check.js.warned-text": "The warning of this daemon ({0}) is about more than its copy can show.",
	"check.js.failed": "Nothing was checked.", "check.js.stopped": "Stopped before the end. Nothing is known.", "check.js.no-worker": "The verifier could not be loaded.",
	"check.js.found": "What was found:", "check.js.broken-at": "record {0}: {1}", "check.js.finding": "record {0}: {1}",
	"check.js.fact-verdict": "Found", "check.js.fact-records": "Records", "check.js.fact-chain": "Chain", "check.js.fact-rules": "Rules", "check.js.fact-manifest": "Archive",
	"check.js.fact-signed": "Signed", "check.js.fact-root": "Root", "check.js.fact-last": "Last hash", "check.js.fact-time": "Time",
	"check.js.verdict-verified": "verified", "check.js.verdict-violations": "violations", "check.js.verdict-unverifiable": "some events cannot be judged here",
	"check.js.verdict-withheld": "some records are withheld", "check.js.verdict-archive-mismatch": "archive mismatch", "check.js.verdict-broken": "broken",
	"check.js.verdict-forked": "forked", "check.js.verdict-equivocated": "equivocated",
	"check.js.records": "{0}, by {1} authors", "check.js.chain-good": "every hash, signature and link is good", "check.js.chain-to": "good up to record {0}",
	"check.js.chain-withheld": "every hash and link is good; withheld signatures: {0}", "check.js.rules": "{0} allowed, {1} violations, {2} not to be judged",
	"check.js.manifest-none": "none yet: the records were read one by one", "check.js.manifest-matches": "the manifest agrees with the records", "check.js.manifest-differs": "the manifest differs from the records",
	"check.js.manifest-unchecked": "not compared", "check.js.manifest-partly": "the manifest agrees as far as it can be checked",
	"check.js.signed": "{0} of {1} statements and attestations agree", "check.js.signed-first": "{0} of the first {1} statements and attestations agree; there are more", "check.js.signed-apart": "Signed about something else:", "check.js.seconds": "{0} s",
	"check.js.trust":   "The verifier is code of this daemon, too. To depend on nobody, use the commands below with a program of your own.",
	"archive.withheld": "Of a room with withheld records there is no file to download by its CID: what these cover is not given out as it was.",
	"attest.title":     "Attestation", "attest.by.one": "%s witness recomputed this archive and saw no other version.", "attest.by.other": "%s witnesses recomputed this archive and saw no other version.",
	"attest.partial": "Some witnesses recomputed this archive, fewer than the policy of this daemon asks for.", "attest.unattested": "Nobody whom this daemon counts has attested the archive yet. A room is attested once it has ended.",
	"attest.equivocated": "A key of the host is proven to have signed two stories. No attestation counts.", "attest.at": "recomputed", "attest.stated": "stated", "attest.part": "a part of it",
	"attest.differs": "another root than here", "attest.statement": "Statement of the host",
	"archive.title": "Archive", "archive.root": "Root", "archive.events": "Records by CID", "archive.bundle": "File by CID", "archive.size": "Size", "archive.records": "Records",
	"branch.title": "The other story", "branch.text": "These records were shown by the host where others stand. They are kept, and are not part of the proceedings.",
	"members.title": "Members", "members.none": "Nobody is in the room now.", "members.more": "and %s more",
	"types.title": "Types", "types.none": "Messages only: the room declares no types.", "types.roles": "May be sent by:",
	"link.manifest": "manifest", "link.resource": "room as JSON", "link.events": "records as JSON", "link.proof": "Merkle proof", "link.checkpoint": "signed checkpoint",
	"link.attestations": "attestations", "link.evidence": "evidence", "link.statements": "statements", "link.hosts": "as JSON", "link.discovery": "discovery", "link.self": "this daemon as JSON",
	"link.keys": "keys", "link.index": "index as JSON", "link.logcheckpoint": "checkpoint",

	// alarms
	"alarm.evidence":    "Look at the evidence",
	"alarm.equivocated": "Proven: this host told two stories about this room", "alarm.equivocated.text": "One of its keys signed two things that cannot both be true. The proof needs nobody's word. What you read here is the story that was told first.",
	"alarm.forked": "This host told two stories about this room", "alarm.forked.text": "It showed another record at a place where one was read before. Both are kept; what you read here is the story that was told first.",
	"alarm.broken": "The records stop holding together", "alarm.broken.text": "What the host gave next is not authentic, or does not link to what was before. It is not shown. Everything below was good.",
	"alarm.archive-mismatch": "The archive does not fit the records", "alarm.archive-mismatch.text": "What the host published as the archive of this room is not what its own records amount to.",
	"alarm.violations.one": "%s record was accepted against the rules", "alarm.violations.other": "%s records were accepted against the rules",
	"alarm.violations.text": "The records are authentic, and linked. But the host let in what the protocol forbids.",
	"alarm.behind":          "The host shows less than it has shown", "alarm.behind.text": "It was put back to an older copy, or it hides something. What was read before is still here.",
	"alarm.host": "Proven: this host signed two logs", "alarm.host.text": "A key of this host signed two versions of its log that cannot both be true. What it signs should not be believed.",

	// hosts
	"hosts.title": "Hosts", "hosts.lead": "This host, and those whose rooms are followed here; and how each stands.", "hosts.none": "No host is followed. Add one with: witan mirror add https://…",
	"hosts.host": "Host", "hosts.state": "State", "hosts.rooms": "Rooms", "hosts.records": "Records", "hosts.behind": "Behind", "hosts.size": "Size", "hosts.since": "Since",
	"host.own": "The rooms of this daemon itself.", "host.facts": "In numbers", "host.origin": "Origin", "host.since": "In this state since", "host.next": "Asked again at", "host.source": "Followed because of",
	"host.problems": "Rooms that are not as they should be", "host.rooms": "Rooms", "host.search": "Search in them", "host.norooms": "No rooms of this host are known.",
	"host.keys": "Keys", "host.keys.text": "Which keys spoke for this host, as it said itself at /.well-known/did.json.", "host.key": "Key", "host.key.for": "For", "host.key.first": "First seen", "host.key.last": "Last seen",
	"host.evidence": "Evidence", "key.agent": "statements", "key.log": "its log", "key.cosigner": "cosignatures", "key.retired": "no longer in use", "key.waiting": "not vouched for",
	"source.flag": "the command line", "source.config": "the configuration", "source.runtime": "the operator",
	"hoststate.following": "It is asked regularly, and answers.", "hoststate.backing-off": "It does not answer. It is asked again, for ever; what is held of it stays readable.",
	"hoststate.paused": "It is not asked now.", "hoststate.blocked": "Its address may not be contacted.", "hoststate.gone": "It answers, but is no host of the protocol any more.",
	"hoststate.rebound": "It shows other keys, and nobody vouched for them. Its rooms are still mirrored; what the new keys sign does not count.", "hoststate.removed": "It is no longer followed. What is held of it stays readable.",

	// witness
	"witness.title": "Witness", "witness.lead": "Who signed what about which archive, and who contradicted themselves.", "witness.lists": "Lists", "witness.filter": "Narrow the list",
	"witness.origin": "Origin", "witness.room": "Room ID", "witness.narrow": "Show",
	"log.title": "The log of this daemon", "log.signs": "Everything that this daemon signs about archives stands in this append-only log.", "log.silent": "Nothing is signed now.",
	"log.none": "This daemon keeps no log: it signs nothing.", "log.origin": "Name", "log.size": "entries in the log", "log.entries": "Entries", "log.root": "Root", "log.key": "Verifier key",
	"list.attestations": "Attestations", "list.attestations.text": "A witness recomputed the archive of a room from its records, and signed what it found.", "list.attestations.none": "No attestations here.",
	"list.statements": "Statements", "list.statements.text": "A host says what the archive of its own ended room is.", "list.statements.none": "No statements here.",
	"list.evidence": "Evidence", "list.evidence.text": "Proofs convince everybody: two signatures of one key that cannot both hold. Observations are what this daemon saw itself.", "list.evidence.none": "No evidence here. That is good.",
	"signed.attestations": "recomputed the archive", "signed.statements": "stated the archive", "signed.hash": "Hash",
	"evidence.raw": "Both sides, as JSON", "evidence.key": "Key", "evidence.statement-contradiction": "Two statements that contradict each other", "evidence.head-contradiction": "Two heads that contradict each other",
	"evidence.checkpoint-contradiction": "Two checkpoints that contradict each other", "evidence.inclusion-contradiction": "Two checkpoints with different leaves",
	"evidence.attestation-contradiction": "Two attestations that contradict each other", "evidence.cosignature-contradiction": "Two cosignatures that contradict each other",

	"evidence.fork": "Another record where one was read before", "evidence.another-genesis": "Another first record", "evidence.stale-head": "Less than was shown before",
	"evidence.archive-mismatch": "An archive that does not fit the records", "evidence.statement-mismatch": "A statement that does not fit the records", "evidence.attestation-mismatch": "An attestation that does not fit the records",
	"evidence.unlogged": "Signed, and not in the log of its signer", "evidence.log-fork": "A log that tells two stories", "evidence.stale-log": "A log that shows less than before",
	"evidence.log-broken": "A log that does not hold together", "evidence.log-entry": "Something in a log that does not belong there",

	// status
	"status.title": "Status", "status.lead": "What this daemon does right now.", "status.now": "Now", "status.plots": "The last two hours", "status.plots.note": "measured four times a minute",
	"status.none": "Not enough was measured yet. Come back in half a minute.", "status.hosts": "All about the hosts", "status.behind": "%s behind",
	"plot.rate": "Records verified", "plot.rate.unit": "a second", "plot.lag": "Behind %s", "plot.used": "Disk in use", "plot.free": "Disk free",
	"plot.most": "at most %s", "plot.alt": "%s: now %s, between %s and %s",

	// errors
	"error.400": "That cannot be asked", "error.401": "A key is needed here", "error.403": "Not for you", "error.404": "Not here", "error.405": "That does not work here", "error.409": "Not now",
	"error.410": "Gone", "error.421": "Another host", "error.429": "Too many requests", "error.451": "Withheld", "error.500": "Something failed here", "error.503": "Not possible at the moment", "error.other": "That did not work",
	"error.404.next": "The address may be wrong, the room private, or its host not followed from here.",
	"error.410.next": "It was let go to save space. Its hashes and proofs remain, and its host may still have it.",
	"error.451.next": "The operator, or the host, keeps it from view. The hash remains, so that everything around it can still be verified.",
	"error.500.next": "Try again later. The operator finds the reason in the log.",
	"error.request":  "Request", "error.rooms": "Search rooms", "error.front": "To the front page",
}

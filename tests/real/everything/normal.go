package everything

import (
	"encoding/base64"
	"regexp"
)

// What the reference server makes anew each time.
var (
	uuid   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	taskID = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	clock  = regexp.MustCompile(`\d{1,2}:\d\d:\d\d[\s\x{202f}]?[AP]M`)
	date   = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)
	blob   = regexp.MustCompile(`"blob":"[A-Za-z0-9+/]+=*"`)
	stage  = regexp.MustCompile(`"statusMessage":"(Gathering sources|Analyzing content)`)
	level  = regexp.MustCompile(`"level":"[a-z]+","data":"[A-Z][a-z]+[- ]level[- ]message`)
)

// normal is a message without that. All else stays, to the byte.
func normal(text string) string {
	const long = 1 << 16
	if len(text) > long {
		return text // an echo of ours, which it takes long to search
	}
	text = blob.ReplaceAllStringFunc(text, func(member string) string {
		const begin, end = len(`"blob":"`), len(`"`)
		content, err := base64.StdEncoding.DecodeString(member[begin : len(member)-end])
		if err != nil || !clock.Match(content) {
			return member
		}
		return `"blob":"<base64 of ` + string(content) + `>"`
	})
	text = uuid.ReplaceAllString(text, "<uuid>")
	text = taskID.ReplaceAllString(text, "<task>")
	text = clock.ReplaceAllString(text, "<clock>")
	text = date.ReplaceAllString(text, "<date>")
	text = stage.ReplaceAllString(text, `"statusMessage":"<stage>`) // the first lasts a second
	return level.ReplaceAllString(text, `"level":"<any>","data":"<any> message`)
}

#!/bin/sh
# Opens the report of a made-up student (tests/labs/submission.sh) in a headless Chromium, in both languages, at 380 and 1,280 pixels and on A4:
#   1. predictions, grades, drawings, texts and answers are in it, as text;
#   2. nothing is wider than the screen or the paper, and each lab begins a page;
#   3. nothing in it can run or fetch: it has only the few elements and attributes of a report, no script of the
#      submission has run, and the browser requested nothing.
# usage: tests/report_in_browser.sh                    (`make report-check`; BUILD: the folder with course_report)
#        tests/report_in_browser.sh --self-test        plants defects in a page and fails unless each is found
#        tests/report_in_browser.sh --can              only prints whether this machine can run the check
# Exit status: 1 also if Chromium, pdftotext or a Chinese font is missing: then nothing was checked.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
[ -x "$build/course_report" ] || { echo "$build/course_report is not built: make" >&2; exit 1; }
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || browser=''
if [ -z "$browser" ] || ! command -v pdftotext >/dev/null || ! fc-list :lang=zh 2>/dev/null | grep -q .; then
    echo 'report-check: NOT checked, since Chromium, pdftotext or a Chinese font is missing (packages chromium, poppler-utils, fontconfig, fonts-wqy-microhei)' >&2
    exit 1
fi
[ "${1:-}" != --can ] || exit 0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
bad=0

complain() {
    echo "report-check: $*"
    bad=$((bad + 1))
}

# A separate browser without access to any network; net.json has the requests that it would have sent.
browse() { # OPTION... URL
    rm -f "$work/net.json"
    HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --user-data-dir="$work/profile" --virtual-time-budget=10000 \
        --host-resolver-rules='MAP * ~NOTFOUND' --proxy-server=127.0.0.1:9 --log-net-log="$work/net.json" "$@" 2>"$work/browser.log"
}

# The browser's own checks of the page, in a frame of that width, because a window has a minimum width.
checking='
addEventListener("load", () => {
    const said = [], root = document.scrollingElement, width = root.clientWidth,
        name = (e) => e.tagName + (e.className.length ? "." + e.className : "");
    const elements = new Set(("html head meta title style script body header main section footer h1 h2 h3 h4 h5 h6 p a bdi time " +
        "table thead tbody tfoot tr th td dl div dt dd figure figcaption blockquote ul ol li pre code span strong em " +
        "svg g path circle ellipse rect line polyline polygon text tspan use defs filter feFlood feComposite desc").split(" "));
    const fetching = /^(src|srcset|href|xlink:href|action|formaction|data|poster|background|ping|manifest|style)$/i;
    const leaves = (a) => /^on/i.test(a.name) || (fetching.test(a.name) && !a.value.startsWith("#")) ||
        (/(https?|javascript|data):|url\((?!#)/i.test(a.value) && !/^aria-|^content$/.test(a.name));
    said.push("width " + innerWidth);
    if (root.scrollWidth > width) said.push("the page is " + root.scrollWidth + " wide");
    if (typeof hacked !== "undefined") said.push("a script of the submission has run: " + hacked);
    for (const entry of performance.getEntriesByType("resource")) said.push("it asked for " + entry.name);
    for (const e of document.querySelectorAll("*")) {
        if (!elements.has(e.localName)) said.push("an element " + e.localName);
        for (const a of e.attributes)
            if (leaves(a)) said.push("an attribute " + a.name + "=" + a.value + " of " + name(e));
        if (e.ownerSVGElement || !document.body.contains(e)) continue;
        const box = e.getBoundingClientRect();
        if (box.right > width + 0.5 || box.left < -0.5) said.push(name(e) + " lies beyond the edge: " + box.left + " to " + box.right);
        if (e.clientWidth && e.scrollWidth > e.clientWidth + 1) said.push(name(e) + " is narrower than what is in it");
    }
    for (const e of document.querySelectorAll("figure svg"))
        if (e.getBoundingClientRect().width < Math.min(300, width / 2) || e.getBoundingClientRect().height < 40) said.push("a picture is too small");
    if (document.querySelectorAll("script").length !== 1) said.push("there is a script");
    if (document.querySelectorAll("[http-equiv]").length !== 0) said.push("a second policy, or a refresh");
    parent.postMessage(said.join("\n") + "\nend\n" + document.body.innerText, "*");
});'
showing='addEventListener("message", (message) => {
    const shown = document.createElement("pre");
    shown.textContent = "\n" + message.data + "\n";
    document.body.append(shown);
});'

# on_screen PAGE WIDTH: the page with that script, and without the policy that would forbid it (or other scripts).
on_screen() {
    grep -q 'Content-Security-Policy.*default-src .none' "$1" || complain "$1 has no policy"
    SCRIPT=$checking awk '/^<meta http-equiv="Content-Security-Policy"/ { next } /^<\/body>/ { print "<script>" ENVIRON["SCRIPT"] "</script>" } { print }' "$1" >"$work/copy.html"
    printf '<!DOCTYPE html><body><script>%s</script><iframe style="width: %dpx; height: 900px; border: 0" src="copy.html"></iframe>\n' "$showing" "$2" >"$work/frame.html"
    browse --window-size=1400,1000 --dump-dom "file://$work/frame.html" >"$work/dump.html" || { complain "the browser failed: $(tail -1 "$work/browser.log")"; return; }
    sed -n "/<pre>/,/^end/p" "$work/dump.html" >"$work/said"
    grep -qx 'end' "$work/said" || complain "the page did not say how it is at $2 pixels"
    grep -qx "width $2" "$work/said" || complain "it was not shown at $2 pixels: $(grep width "$work/said" | head -1)"
    grep -vxE '<pre>|width [0-9]+|end|' "$work/said" | sort -u | head -20 >"$work/wrong"
    while read -r line; do complain "$2 pixels: $line"; done <"$work/wrong"
    ! grep -q '192\.0\.2\.1' "$work/net.json" || complain "$2 pixels: it asked 192.0.2.1 for something"
}

# on_paper PAGE
on_paper() {
    browse --no-pdf-header-footer --print-to-pdf="$work/page.pdf" "file://$1" >/dev/null || { complain "printing failed: $(tail -1 "$work/browser.log")"; return; }
    pdfinfo "$work/page.pdf" | grep -q 'Page size:.*(A4)' || complain "the paper is not A4: $(pdfinfo "$work/page.pdf" | grep size)"
    pdftotext "$work/page.pdf" "$work/page.txt"
    pdftotext -bbox "$work/page.pdf" "$work/words.html"
    # 16 mm on both sides are 45 points of 595; if something is wider than the paper, Chromium prints everything
    # smaller: text of 10 points
    awk -F'"' '/<word / { n++; if ($2 < 44 || $6 > 551) { print "beyond the margin of the paper: " $0; if (++bad > 5) exit } }
        /<word .*>lockstep</ && !seen++ && $8 - $4 < 10 { print "printed smaller than it should be, since something is too wide: " $0 }
        END { if (n < 100) print "the printed page has " n + 0 " words" }' "$work/words.html" >"$work/wrong"
    while read -r line; do complain "$line"; done <"$work/wrong"
    ! grep -q '192\.0\.2\.1' "$work/net.json" || complain 'printing: it asked 192.0.2.1 for something'
}

# expect FILE TEXT...
expect() {
    file=$1
    shift
    for text; do tr '\n' ' ' <"$file" | grep -qF -- "$text" || complain "$(basename "$file") has no '$text'"; done
}

# begins_a_page TEXT
begins_a_page() { awk -v text="$1" 'BEGIN { RS = "\f" } index($0, text) == 1 { found = 1 } END { exit !found }' "$work/page.txt" || complain "'$1' does not begin a page"; }

make_page() { # LANGUAGE
    rm -rf "$work/made"
    tests/labs/submission.sh "$work/made" "$build" || exit 1
    BUILD=$work/made/build COURSE_REFERENCE='' LS_LANG=$1 STUDENT='Eve <script>hacked = 0</script> 李' labs/course/report.sh "$work/made/code" "$work/made/labs" "$work/$1.html" 02 03 >/dev/null || exit 1
}

if [ "${1:-}" = --self-test ]; then
    make_page en
    plant() { # WHAT IT IS CALLED, WHAT STANDS BEFORE </main>
        bad=0
        awk -v plant="$2" '/^<\/main>/ { print plant } { print }' "$work/en.html" >"$work/planted.html"
        on_screen "$work/planted.html" 380 >"$work/found"
        [ $bad -gt 0 ] && grep -q -- "$1" "$work/found" && return
        echo "report-check: the self-test planted what is not found: $2"
        cat "$work/found"
        exit 1
    }
    plant 'lies beyond the edge' '<p><span style="display: inline-block; width: 500px">wide</span></p>'
    plant 'an attribute onclick' '<p onclick="x()">click</p>'
    plant 'it asked for http://192.0.2.1' '<p><img src="http://192.0.2.1/a.png"></p>'
    plant 'asked 192.0.2.1' '<p><img src="http://192.0.2.1/a.png"></p>'
    plant 'a script of the submission has run' '<script>hacked = 13</script>'
    plant 'a picture is too small' '<figure><svg style="width: 10px"></svg></figure>'
    bad=0
    sed 's|^</main>|<div style="width: 1000px; text-align: right">wide</div>&|' "$work/en.html" >"$work/planted.html"
    on_paper "$work/planted.html" >"$work/found"
    grep -q 'printed smaller' "$work/found" || { echo 'report-check: the self-test printed a page that is too wide, which is not found'; exit 1; }
    echo 'report-check: all that the self-test planted was found'
    exit 0
fi

for language in en zh; do
    make_page $language
    for width in 380 1280; do
        on_screen "$work/$language.html" $width
        expect "$work/dump.html" '3,670,016, since every rank' 'measured on this machine &amp; &lt;others&gt;' 'replayed on dgx1-v100' 'ls_todo("03")' '环形 all-reduce'
    done
    on_paper "$work/$language.html"
    expect "$work/page.txt" '3,670,016, since every rank' '14680064' 'measured on this machine & <others>' 'replayed on dgx1-v100' '<script>hacked' \
        'expected 6, got' 'looks like a head of a diff' 'In step 4, see ls_comm_await_step' '环形 all-reduce'
    if [ $language = en ]; then
        expect "$work/page.txt" 'Course report' '4 of 12' '2 of 3' 'were right' 'First failing case:' 'no answer yet'
        begins_a_page 'Lab 02, ' && begins_a_page 'Lab 03, ' && begins_a_page 'Figures of the programs'
    else
        expect "$work/page.txt" '课程报告' '4 / 12' '相符' '第一个出错的情形' '还没有回答'
        begins_a_page '实验 02：' && begins_a_page '实验 03：'
    fi
done
[ $bad -eq 0 ] || exit 1
echo "report-check: two languages, on screens of 380 and 1280 pixels and on A4: all as it should be ($("$browser" --version 2>/dev/null))"

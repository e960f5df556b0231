# page — the report's HTML, from facts: lines of a key and fields, with tabs between them. report.sh runs it twice.
#     -v part=labs -v sums=FILE: a section for each lab; and its line of the summary, to FILE
#         lab NUMBER TITLE, and in any order:
#             state same, other or never: whether it was graded | sheet FILE: where answers belong
#             predict QUESTION PREDICTED SIGN KIND VALUE | remark TEXT: a line of predict.txt that is not a prediction
#             check NAME WORDS: the invariant, in the page's language | grade POINTS OF SEED | judged NAME held-or-lost VERDICT POINTS OF INVARIANT WHY
#             picture NAME KINDS GNUPLOT FILE, or picture NAME '' '' '' WHY: not shown | more COUNT
#             code FILE | answers FILE: as course_report --as=text and --as=answers wrote them
#         programs FOLDER: pictures alone
#         end
#     -v part=head: the head, from those lines of the summary, machine KEY VALUE and student NAME
# The page has no scripts and no links; the policy in its head also forbids both, in case course_report is bypassed. All
# fields have been through course_report --as=text, which leaves no markup in them.

BEGIN {
    FS = "\t"
    while ((getline line <(folder "/words.txt")) > 0) if (split(line, word, / \| /) == 3) says[word[1]] = word[language == "zh" ? 3 : 2]
}

function say(key) {
    if (key in says) return says[key]
    print folder "/words.txt has no '" key "'" >"/dev/stderr"
    exit failed = 1
}
function missing(text) { return "<p class=\"missing\">" text "</p>" }
function share(label, some, all) { return "<td class=\"number\" data-label=\"" say(label) "\">" (all > 0 ? sprintf(say("points-of"), some, all) : "&#8211;") "</td>" }
function column(key, class) { return "<th scope=\"col\"" (class ? " class=\"" class "\"" : "") ">" say(key) "</th>" }
function table(class, columns) { return "<table class=\"" class "\"><thead><tr>" columns "</tr></thead><tbody>\n" }

# Copies the output of course_report, up to `most` lines; counts questions and those without an answer.
function copy(file, most, line, count) {
    while ((getline line <file) > 0) {
        questions += line == "<div class=\"question\">"
        if (line == "<p class=\"missing\"></p>") { unanswered++; line = missing(say("no-answer")) }
        if (++count <= most) print line
    }
    close(file)
    return count > most ? count - most : 0
}

# --- a lab's facts -----------------------------------------------------------------------------------------------------

$1 == "lab" || $1 == "programs" {
    number = $2; title = $3
    split("", fact)
    predictions = came = points = of = questions = unanswered = figures = 0
    rows = remarks = judged = failure = ""
}
$1 == "state" || $1 == "sheet" || $1 == "code" || $1 == "answers" || $1 == "more" { fact[$1] = $2 }
$1 == "remark" { remarks = remarks (remarks ? "\n" : "") $2 }
$1 == "check" { must[$2] = $3 }
$1 == "picture" { for (i = 2; i <= 6; i++) picture[figures, i] = $i; figures++ }
$1 == "grade" { points = $2; of = $3; fact["grade"] = sprintf(say("grade-line"), $2, $3, $4) }

$1 == "predict" {
    predictions++
    came += $4 == "="
    if ($6 != "") fact["ran"] = 1
    question = $2
    while (match(question, /&#96;[^&]*&#96;/))
        question = substr(question, 1, RSTART - 1) "<code>" substr(question, RSTART + 5, RLENGTH - 10) "</code>" substr(question, RSTART + RLENGTH)
    rows = rows "<tr><th scope=\"row\">" question "</th><td data-label=\"" say("predicted") "\">" \
        ($3 == "" ? "<span class=\"missing\">" say("not-predicted") "</span>" : $3) "</td><td data-label=\"" say("result") "\">"
    if ($6 == "") rows = rows "<span class=\"missing\">" say("not-run") "</span>"
    else rows = rows "<strong>" $6 "</strong> <span class=\"kind\">" say("kind-" $5) "</span>" \
        ($3 == "" ? "" : " <span class=\"" ($4 == "=" ? "true" : "false") "\">" say("came-" $4) "</span>")
    rows = rows "</td></tr>\n"
}

$1 == "judged" {
    lost = $3 == "lost" && $8 != ""
    if (lost && !failure) failure = "<p class=\"failure\"><strong>" say("first-failure") "</strong> <code>" $2 "</code>: " $8 "</p>\n"
    judged = judged "<tr class=\"" $3 "\"><th scope=\"row\"><code>" $2 "</code></th><td data-label=\"" say("invariant") "\">" \
        ($2 in must ? must[$2] : $7) (lost ? "<div class=\"why\">" $8 "</div>" : "") "</td><td class=\"verdict\" data-label=\"" say("verdict") "\">" $4 \
        "</td>" share("points", $5, $6) "</tr>\n"
}

# --- a lab's section ---------------------------------------------------------------------------------------------------

function put_predictions() {
    print "<h3>" say("predictions") "</h3>"
    if (!("ran" in fact)) print missing(sprintf(say("lab-not-run"), number))
    print table("predictions", column("question") column("predicted") column("result")) rows "</tbody></table>"
    if (remarks) print "<h4>" say("remarks") "</h4>\n<p class=\"remarks\">" remarks "</p>"
}

function put_grade() {
    print "<h3>" say("grade") "</h3>"
    if (!("grade" in fact)) print missing(sprintf(say("graded-" fact["state"]), number))
    else print "<p class=\"score\">" fact["grade"] "</p>\n" failure \
        table("checks", column("check") column("invariant") column("verdict") column("points", "number")) judged "</tbody></table>"
}

# A caption has all of the kinds that the picture names ("measured", "replayed", ...).
function put_figures(i, k, kinds, count, caption) {
    for (i = 0; i < figures; i++) {
        print "<figure>"
        if (picture[i, 5]) copy(picture[i, 5], 1e9)
        count = split(picture[i, 3], kinds, " ")
        caption = !picture[i, 5] || count ? "" : "<span class=\"kind unsaid\">" say("kind-not-said") "</span> "
        for (k = 1; k <= count; k++) caption = caption "<span class=\"kind\">" say("kind-" kinds[k]) "</span> "
        print "<figcaption>" caption "<code>" picture[i, 2] "</code>" (picture[i, 4] ? say("drawn-by") : "") \
            (picture[i, 6] == "" ? "" : sprintf(say("not-shown"), picture[i, 6])) "</figcaption></figure>"
    }
    if (fact["more"]) print missing(sprintf(say("more-figures"), fact["more"]))
}

function put_code(left) {
    print "<h3>" say("code") "</h3>\n<p class=\"" ("code" in fact ? "note\">" say("code-note") : "missing\">" say("no-code")) "</p>"
    if (!("code" in fact)) return
    print "<pre class=\"diff\">"
    left = copy(fact["code"], 3000)
    print "</pre>"
    if (left) print missing(sprintf(say("more-lines"), left))
}

function put_answers() {
    print "<h3>" say("answers") "</h3>"
    if (!("answers" in fact)) { print missing(sprintf(say("no-answers"), fact["sheet"])); return }
    print "<div class=\"answers\">"
    copy(fact["answers"], 1e9)
    print "</div>"
}

$1 == "end" && number ~ /^[0-9]+$/ {
    print "<section class=\"lab\" id=\"lab-" number "\">\n<h2>" sprintf(say("lab-title"), number, title) "</h2>"
    put_predictions()
    put_grade()
    if (figures) { print "<h3>" say("figures") "</h3>"; put_figures() }
    put_code()
    put_answers()
    print "</section>"
    print "sum", number, title, "grade" in fact ? "same" : fact["state"], points, of, came, predictions, questions - unanswered, questions >sums
}
$1 == "end" && number !~ /^[0-9]+$/ && figures {
    print "<section class=\"lab\" id=\"programs\">\n<h2>" say("program-figures") "</h2>\n<p class=\"note\">" sprintf(say("program-figures-note"), number) "</p>"
    put_figures()
    print "</section>"
}
BEGIN { OFS = "\t" }

# --- above the labs ----------------------------------------------------------------------------------------------------

$1 == "student" { student = $2 }
$1 == "machine" {
    value = $3 == "unknown" ? say("unknown") : $2 == "load" ? sprintf(say("load-note"), $3) : $4 != "" ? sprintf(say("lockstep-commit"), $3, $4) : $3
    if ($2 == "date") date = substr($3, 1, 10)
    machine = machine "<div><dt>" say($2) "</dt><dd>" value "</dd></div>\n"
}
$1 == "sum" {
    summary = summary "<tr><th scope=\"row\"><a href=\"#lab-" $2 "\">" $2 " " $3 "</a></th>" ($4 == "same" ? share("points", $5, $6) : \
        "<td class=\"number missing\" data-label=\"" say("points") "\">" say($4 == "other" ? "changed-since" : "not-graded") "</td>") \
        share("came-true", $7, $8) share("answered", $9, $10) "</tr>\n"
    for (i = 5; i <= 10; i++) all[i] += $i
}

END {
    if (failed) exit 1
    if (part == "foot") print "</main>\n<footer>" say("contents-note") "</footer>\n</body>\n</html>"
    if (part != "head") exit
    print "<!DOCTYPE html>\n<html lang=\"" say("page-language") "\">\n<head>\n<meta charset=\"utf-8\">"
    print "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"
    print "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">"
    print "<title>lockstep: " say("report") (student ? ", " student : "") "</title>\n<style>"
    copy(folder "/style.css", 1e9)
    print "</style>\n</head>\n<body>\n<header>\n<p class=\"product\">lockstep</p>\n<h1>" say("report") "</h1>"
    print "<p class=\"by\">" (student ? "<bdi>" student "</bdi> · " : "") "<time>" date "</time></p>\n</header>\n<main>"
    print "<section>\n<h2>" say("summary") "</h2>"
    print table("summary", column("lab") column("points", "number") column("came-true", "number") column("answered", "number")) summary \
        "</tbody><tfoot><tr><th scope=\"row\">" say("all-labs") "</th>" share("points", all[5], all[6]) share("came-true", all[7], all[8]) \
        share("answered", all[9], all[10]) "</tr></tfoot></table>\n</section>"
    print "<section>\n<h2>" say("machine") "</h2>\n<p class=\"note\">" say("machine-note") "</p>\n<dl class=\"machine\">\n" machine "</dl>\n</section>"
}

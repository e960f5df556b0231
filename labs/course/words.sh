# The course scripts' messages to students, in English and in Chinese; conf.sh sources this file. LS_LANG: empty or
# en...: English; zh...: Chinese.
# Output for programs (grade.json, class.csv, the input of course-check) is always English.
case ${LS_LANG:-} in
'' | en*) language=en ;;
zh*) language=zh ;;
*)
    echo "LS_LANG is '$LS_LANG', which is unknown: the output is English; LS_LANG=zh is Chinese" >&2
    language=en
    export LS_LANG=en # so that the warning appears once
    ;;
esac

# words_in LANGUAGE KEY ARGUMENT...: prints the key's text without a newline. The table: a key, and formats for printf.
words_in() {
    words_language=$1 words_key=$2
    shift 2
    case $words_key in
    # every script
    no-lab) en="there is no lab '%s'; there are: %s" zh='没有实验 %s；现有：%s' ;;
    # build.sh's progress, for work of seconds
    building-reference) en='lab %s: building the reference' zh='实验 %s：编译参考实现' ;;
    building-planted) en='lab %s: building the programs with planted bugs' zh='实验 %s：编译植入错误的程序' ;;
    building-yours) en='lab %s: building your code' zh='实验 %s：编译你的代码' ;;
    not-built) en='%s is not built: make' zh='%s 还没有编译：请运行 make' ;;
    # build.sh: why code is not run
    closed-text) en='%s, line %s: %s is closed to a solution; labs/README.md says what may be used' \
        zh='%s 第 %s 行：解答不能使用 %s；可以使用什么，见 labs/README.zh.md' ;;
    other-header) en='%s includes %s: headers of this tree, of C and of POSIX threads are open' zh='%s 包含了 %s：可以包含本目录树、C 和 POSIX 线程的头文件' ;;
    other-object) en='%s has what ordinary code has not: %s' zh='%s 里有普通代码没有的东西：%s' ;;
    system-calls) en='%s makes system calls of its own' zh='%s 里有直接的系统调用' ;;
    calls-others) en='it calls %s, which is closed to a solution; labs/README.md says what may be called' \
        zh='代码调用了 %s，解答不能调用它；可以调用什么，见 labs/README.zh.md' ;;
    defines-others) en="it defines %s for other files: only the lab's own names may be; make it static" \
        zh='代码为其他文件定义了 %s：只有本实验自己的名字可以这样；请加上 static' ;;
    not-own) en='%s is no regular text file of this folder of at most 1 MB: a link, a device, not to be read, or too large' \
        zh='%s 不是这个文件夹里不超过 1 MB 的普通文本文件：是链接、设备、不可读，或者太大' ;;
    too-many-headers) en='%s includes more than 100 headers of its own' zh='%s 包含了 100 个以上自己的头文件' ;;
    file-missing) en='%s is missing' zh='缺少文件 %s' ;;
    no-compile) en='it does not compile: %s' zh='编译失败：%s' ;;
    no-link) en='it does not link' zh='链接失败' ;;
    no-link-programs) en='its programs do not link' zh='本实验的程序链接失败' ;;
    no-link-asan) en='it does not link under AddressSanitizer' zh='用 AddressSanitizer 编译时链接失败' ;;
    # grade.sh, class.sh
    no-reference) en='lab %s: its reference does not build' zh='实验 %s：参考实现编译失败' ;;
    no-folder) en="there is no folder '%s'" zh='没有文件夹 %s' ;;
    students-graded) en='  %d of %d students graded' zh='  已评 %d/%d 名学生' ;;
    student-points) en='%3d of %3d points  %s' zh='%3d/%3d 分  %s' ;;
    not-confined) en='nothing would confine the code of a class here: this kernel offers no seccomp filter. Grade on another machine' \
        zh='这台机器的内核不提供 seccomp 过滤器，全班的代码将不受任何限制：请换一台机器评分' ;;
    tree-changed) en="This tree is its own reference, and it was changed: %s. Put that back, and work in a handout (make handout OUT=DIR) or in a folder with your files alone (CODE=DIR)" \
        zh='这个目录树自己就是参考实现，而它已被修改：%s。请恢复这些文件，并在讲义目录（make handout OUT=DIR）里，或在只放自己文件的文件夹里（CODE=DIR）完成实验' ;;
    # lab.sh: the session
    session) en='lab %s, %s (%s/README.md)' zh='实验 %s，%s（%s/README.zh.md）' ;;
    not-predicted) en='Not predicted yet:%s. Write a line "NAME: what you expect, and why" for each into %s, and come back; or PREDICT=skip.' \
        zh='还没有预测：%s。请在 %s 里为每一项写一行“名字: 你的预测和理由”，然后再来；也可以用 PREDICT=skip 跳过。' ;;
    reference-runs) en='Not all of it is written yet: what runs is the reference.' zh='代码还没有写全：下面运行的是参考实现。' ;;
    run-failed) en='this run failed' zh='这次运行失败了' ;;
    status-comment) en='exit status' zh='退出码' ;;
    # columns of 18 and 22 characters on the screen: a Chinese character takes two
    compare) en='                   it is                    you predicted' zh='                   实际                     你的预测' ;;
    # report.sh
    answers-new) en='%s is new: write your answers there, below the questions, and come back' zh='已新建 %s：请把答案写在各个问题下面，然后重新运行' ;;
    nothing-begun) en='nothing to report: no lab is begun there; labs/README.md says how to begin one' \
        zh='报告没有内容：还没有开始任何实验；怎样开始，见 labs/README.zh.md' ;;
    no-page) en="%s cannot be written; the page is a file NAME.html in a folder that is there: make report OUT=NAME.html" \
        zh='无法写入 %s；报告应是已有文件夹里的 NAME.html 文件：make report OUT=NAME.html' ;;
    # figures.sh, pictures.sh
    picture-failed) en='%s: its picture could not be drawn: see the lines above' zh='%s：图没有画成：见上面的输出' ;;
    figure-failed) en='%s: figure %s: the command failed, or printed nothing: %s' zh='%s：数字 %s：命令失败，或没有输出：%s' ;;
    figure-no-place) en='%s has no place for figure %s' zh='%s 里没有数字 %s 的位置' ;;
    figure-other) en='%s: figure %s is %s here: make lab-figures' zh='%s：数字 %s 在这台机器上是 %s：请运行 make lab-figures' ;;
    *) en="labs/course/words.sh has no '$words_key'" zh=$en ;;
    esac
    # shellcheck disable=SC2059
    case $words_language in zh) printf "$zh" "$@" ;; *) printf "$en" "$@" ;; esac
}

# The same in the student's language, as a line.
words() {
    words_in "$language" "$@"
    echo
}

module github.com/spendonce/spendonce/tools/testreport

go 1.26.0

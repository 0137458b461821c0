from baobab.cli import main

main()

def checks(world, report):
    pass

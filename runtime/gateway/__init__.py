"""The gateway to models: the catalogue, the providers and the routing of calls. It knows no interfaces and no
accounts.
"""
